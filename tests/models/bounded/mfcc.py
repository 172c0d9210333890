"""Features of speech from a waveform of any length: Fourier transforms of as many windows as it has."""

import numpy as np
import tensorflow as tf

MOST = 512
TAPS = np.random.default_rng(0).standard_normal((3, 13, 4)).astype(np.float32)


@tf.function(input_signature=[tf.TensorSpec((None,), name="wave")])
def model(wave):
    """Returns cepstral coefficients of each window, a dilated convolution of these, a mean, and spectra of whole windows."""
    spectra = tf.abs(tf.signal.stft(wave, 80, 32, pad_end=True))
    scale = tf.signal.linear_to_mel_weight_matrix(20, 65, 4000, 80.0, 1900.0)
    log_mel = tf.math.log(spectra @ scale + 1e-3)
    mfcc = tf.signal.mfccs_from_log_mel_spectrograms(log_mel)[:, :13]
    return {
        "dilated": tf.nn.convolution(mfcc[None], TAPS, padding="SAME", dilations=[2])[0],
        "mean": tf.reduce_mean(log_mel, 0),
        "mfcc": mfcc,
        "whole": tf.signal.stft(wave, 80, 32),
    }


def golden_fn(step, rng):
    """Lengths of no whole window, of one, of one more, and around the buckets."""
    return (rng.standard_normal([1, 79, 80, 111, 112, 127, 128, 129, MOST - 1, MOST][step % 10]),)
