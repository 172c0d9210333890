"""The front end of a speech model: from a second of sound to Mel-frequency cepstral coefficients."""

import tensorflow as tf

RATE = 16000
FRAME = 400
STEP = 160


def input_fn():
    """Returns one second of one channel, between -1 and 1."""
    return tf.compat.v1.placeholder(tf.float32, [1, RATE], "sound"), ()


def model_fn(sound, _):
    """Returns 13 coefficients for each of 98 frames of 25 ms, 10 ms apart."""
    spectrum = tf.abs(tf.signal.stft(sound, FRAME, STEP, fft_length=512))
    mel = tf.signal.linear_to_mel_weight_matrix(80, 257, RATE, 20.0, 7600.0)
    energies = tf.math.log(tf.matmul(spectrum, mel) + 1e-6)
    return tf.signal.mfccs_from_log_mel_spectrograms(energies)[..., :13]
