"""How often each pass applies to a model, and how many of XLA's kernels remain. ./bazelw run //tools/dev:places made it.

Several functions of a model have a row each. The levels have the kernels that remain, and passes without places are left out.
"""

visibility(["//tests/places/..."])

# What the default tier builds.
DEFAULT = {
    "//examples/architectures:attention_stack_aot": {"epilogues": 1, "softmax": 4, "transposes": 4, "row_sums": 8, "prepack": 16, "x86-64-v3": 24, "x86-64-v4": 24},
    "//examples/architectures:decoder_with_cache_aot": {"mlp_fusion": 4, "transpose_folding": 8, "row_sums": 18, "x86-64-v3": 82, "x86-64-v4": 82},
    "//examples/architectures:encoder_decoder_aot": {"epilogues": 5, "softmax": 4, "transposes": 6, "row_sums": 20, "prepack": 33, "x86-64-v3": 60, "x86-64-v4": 60},
    "//examples/architectures:llama_aot": {"epilogues": 3, "transposes": 8, "elementwise_fusion": 4, "row_sums": 9, "prepack": 29, "x86-64-v3": 47, "x86-64-v4": 47},
    "//examples/architectures:mixed_precision_aot": {"elementwise_fusion": 2, "reduce_as_matmul": 1, "x86-64-v3": 65, "x86-64-v4": 65},
    "//examples/argmax:argmax_aot columns": {"x86-64-v3": 2, "x86-64-v4": 2},
    "//examples/argmax:argmax_aot either": {"x86-64-v3": 3, "x86-64-v4": 3},
    "//examples/argmax:argmax_aot rows": {"x86-64-v3": 2, "x86-64-v4": 2},
    "//examples/batch_family:batch_family_aot b1": {"mlp_fusion": 2, "softmax": 1, "x86-64-v3": 0, "x86-64-v4": 0},
    "//examples/batch_family:batch_family_aot b64": {"epilogues": 1, "x86-64-v3": 4, "x86-64-v4": 4},
    "//examples/batch_family:batch_family_aot b8": {"epilogues": 1, "x86-64-v3": 4, "x86-64-v4": 4},
    "//examples/bf16:bf16_aot": {"x86-64-v3": 21, "x86-64-v4": 21},
    "//examples/clusters:branches_library cluster_0": {"x86-64-v3": 2, "x86-64-v4": 2},
    "//examples/clusters:branches_library cluster_1": {"softmax": 1, "x86-64-v3": 1, "x86-64-v4": 1},
    "//examples/clusters:branches_library cluster_2": {"x86-64-v3": 2, "x86-64-v4": 2},
    "//examples/clusters:branches_library cluster_3": {"x86-64-v3": 2, "x86-64-v4": 2},
    "//examples/clusters:branches_library cluster_4": {"x86-64-v3": 1, "x86-64-v4": 1},
    "//examples/clusters:branches_library cluster_5": {"x86-64-v3": 1, "x86-64-v4": 1},
    "//examples/clusters:branches_library cluster_6": {"x86-64-v3": 2, "x86-64-v4": 2},
    "//examples/clusters:classifier_library cluster_0": {"mlp_fusion": 1, "epilogues": 3, "softmax": 1, "reduce_as_matmul": 1, "gemv_layout": 1, "prepack": 3, "x86-64-v3": 3, "x86-64-v4": 3},
    "//examples/clusters:orders_library cluster_0.b1": {"mlp_fusion": 1, "gemv_layout": 1, "x86-64-v3": 3, "x86-64-v4": 3},
    "//examples/clusters:orders_library cluster_0.b64": {"prepack": 1, "x86-64-v3": 5, "x86-64-v4": 5},
    "//examples/clusters:orders_library cluster_0.b8": {"prepack": 1, "x86-64-v3": 5, "x86-64-v4": 5},
    "//examples/clusters:pictures_library cluster_0": {"mlp_fusion": 1, "epilogues": 2, "softmax": 1, "reduce_as_matmul": 1, "gemv_layout": 1, "prepack": 1, "x86-64-v3": 4, "x86-64-v4": 4},
    "//examples/dict_inputs:dict_inputs_aot": {"x86-64-v3": 10, "x86-64-v4": 10},
    "//examples/dropout:dropout_aot": {"epilogues": 1, "x86-64-v3": 13, "x86-64-v4": 13},
    "//examples/embedding/threads:scorer_aot": {"x86-64-v3": 1, "x86-64-v4": 1},
    "//examples/entry_points:entry_points_aot forward": {"x86-64-v3": 1, "x86-64-v4": 1},
    "//examples/entry_points:entry_points_aot init": {"x86-64-v3": 18, "x86-64-v4": 18},
    "//examples/entry_points:entry_points_aot read": {"x86-64-v3": 2, "x86-64-v4": 2},
    "//examples/entry_points:entry_points_aot train": {"mlp_fusion": 2, "elementwise_fusion": 2, "x86-64-v3": 5, "x86-64-v4": 5},
    "//examples/fc:fc_aot": {"epilogues": 8, "column_reduction": 4, "row_sums": 1, "x86-64-v3": 18, "x86-64-v4": 18},
    "//examples/graph_config:graph_config_aot": {"x86-64-v3": 2, "x86-64-v4": 2},
    "//examples/mobilenet_v2:mobilenet_v2_aot": {"fold_batch_norm": 52, "gemv_packing": 1, "epilogues": 53, "reduce_as_matmul": 1, "prepack": 35, "x86-64-v2": 8, "x86-64-v3": 8, "x86-64-v4": 8},
    "//examples/saved_model:saved_model_tf1_aot": {"x86-64-v3": 4, "x86-64-v4": 4},
    "//examples/saved_model:saved_model_tf2_aot Learn": {"row_sums": 3, "x86-64-v3": 5, "x86-64-v4": 5},
    "//examples/saved_model:saved_model_tf2_aot Predict": {"x86-64-v3": 1, "x86-64-v4": 1},
    "//examples/stablehlo:mlp_aot": {"epilogues": 1, "softmax": 1, "x86-64-v3": 0, "x86-64-v4": 0},
    "//examples/study:conv_fc_adam_aot": {"epilogues": 2, "column_reduction": 2, "filter_gradients": 1, "elementwise_fusion": 5, "row_sums": 1, "x86-64-v3": 19, "x86-64-v4": 19},
    "//examples/study:conv_fc_aot": {"epilogues": 3, "column_reduction": 2, "filter_gradients": 1, "row_sums": 1, "x86-64-v3": 15, "x86-64-v4": 15},
    "//examples/study:conv_fc_batchnorm_adam_aot": {"epilogues": 2, "column_reduction": 6, "filter_gradients": 1, "elementwise_fusion": 8, "row_sums": 2, "x86-64-v3": 27, "x86-64-v4": 27},
    "//examples/study:conv_fc_batchnorm_aot": {"epilogues": 3, "column_reduction": 6, "filter_gradients": 1, "elementwise_fusion": 1, "row_sums": 2, "x86-64-v3": 25, "x86-64-v4": 25},
    "//examples/study:conv_fc_batchnorm_notrain_aot": {"epilogues": 2, "column_reduction": 4, "filter_gradients": 1, "row_sums": 1, "x86-64-v3": 21, "x86-64-v4": 21},
    "//examples/study:dynamic_rnn_aot": {"loop_invariants": 2, "batch_weight_gradients": 1, "epilogues": 2, "transposes": 2, "reduce_as_matmul": 1, "pack_loops": 1, "x86-64-v3": 36, "x86-64-v4": 36},
    "//examples/study:fc_adam_aot": {"epilogues": 4, "column_reduction": 4, "elementwise_fusion": 10, "row_sums": 1, "x86-64-v3": 20, "x86-64-v4": 20},
    "//examples/study:fc_batchnorm_adam_aot": {"epilogues": 4, "column_reduction": 20, "elementwise_fusion": 22, "row_sums": 5, "x86-64-v3": 52, "x86-64-v4": 52},
    "//examples/study:fc_batchnorm_aot": {"epilogues": 8, "column_reduction": 20, "elementwise_fusion": 4, "row_sums": 5, "x86-64-v3": 58, "x86-64-v4": 58},
    "//examples/study:fc_batchnorm_notrain_aot": {"epilogues": 4, "column_reduction": 12, "row_sums": 1, "x86-64-v3": 42, "x86-64-v4": 42},
    "//examples/study:fc_kerasbatchnorm_aot": {"epilogues": 2, "column_reduction": 5, "elementwise_fusion": 1, "row_sums": 2, "x86-64-v3": 22, "x86-64-v4": 22},
    "//examples/study:keras_rnn_aot": {"loop_invariants": 7, "batch_weight_gradients": 1, "mlp_fusion": 1, "epilogues": 1, "pack_loops": 2, "x86-64-v3": 35, "x86-64-v4": 35},
    "//examples/study:rnn_seq_length_aot": {"loop_invariants": 2, "batch_weight_gradients": 1, "epilogues": 1, "row_fusion": 2, "column_reduction": 1, "elementwise_fusion": 3, "pack_loops": 2, "x86-64-v3": 61, "x86-64-v4": 61},
    "//examples/tf_keras_lstm:tf_keras_lstm_aot Predict": {"epilogues": 1, "transposes": 1, "pack_loops": 2, "x86-64-v3": 10, "x86-64-v4": 10},
    "//examples/tf_keras_lstm:tf_keras_lstm_aot Train": {"loop_invariants": 2, "batch_weight_gradients": 1, "epilogues": 1, "transposes": 1, "elementwise_fusion": 6, "pack_loops": 3, "x86-64-v3": 55, "x86-64-v4": 55},
    "//examples/training_loop:digits_aot": {"epilogues": 4, "row_sums": 1, "x86-64-v3": 16, "x86-64-v4": 16},
    "//examples/transformer:transformer_aot": {"erfc": 2, "softmax": 2, "transposes": 2, "row_sums": 8, "prepack": 12, "x86-64-v3": 22, "x86-64-v4": 22},
    "//examples/vector_mean:vector_mean_aot": {"x86-64-v3": 1, "x86-64-v4": 1},
}

# What only the tier `full` builds.
FULL = {
}

# What no tier builds: nets that take minutes.
MANUAL = {
}
