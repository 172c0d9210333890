// Two layers, as any frontend of StableHLO could write them. Names of inputs are in locations, and names of outputs in
// attributes, both as JAX has them.
module @mlp {
  func.func public @main(%x: tensor<8x4xf32> loc("x")) -> (tensor<8x3xf32> {jax.result_info = "result['probabilities']"}) {
    %hidden_weights = stablehlo.constant dense<[
      [ 0.9, -0.4,  0.3,  0.1, -0.7], [-0.2,  0.8,  0.5, -0.6,  0.2],
      [ 0.4,  0.1, -0.9,  0.7,  0.3], [-0.5,  0.6,  0.2,  0.3, -0.8]]> : tensor<4x5xf32>
    %hidden_bias = stablehlo.constant dense<[0.1, -0.2, 0.0, 0.3, 0.1]> : tensor<5xf32>
    %weights = stablehlo.constant dense<[
      [0.7, -0.3, 0.1], [-0.6, 0.5, 0.2], [0.2, 0.4, -0.8], [0.3, -0.1, 0.6], [-0.4, 0.9, 0.5]]> : tensor<5x3xf32>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %lowest = stablehlo.constant dense<0xFF800000> : tensor<f32>

    %product = stablehlo.dot_general %x, %hidden_weights, contracting_dims = [1] x [0]
      : (tensor<8x4xf32>, tensor<4x5xf32>) -> tensor<8x5xf32>
    %biases = stablehlo.broadcast_in_dim %hidden_bias, dims = [1] : (tensor<5xf32>) -> tensor<8x5xf32>
    %sum = stablehlo.add %product, %biases : tensor<8x5xf32>
    %zeros = stablehlo.broadcast_in_dim %zero, dims = [] : (tensor<f32>) -> tensor<8x5xf32>
    %hidden = stablehlo.maximum %sum, %zeros : tensor<8x5xf32>
    %logits = stablehlo.dot_general %hidden, %weights, contracting_dims = [1] x [0]
      : (tensor<8x5xf32>, tensor<5x3xf32>) -> tensor<8x3xf32>

    %largest = stablehlo.reduce(%logits init: %lowest) applies stablehlo.maximum across dimensions = [1]
      : (tensor<8x3xf32>, tensor<f32>) -> tensor<8xf32>
    %shift = stablehlo.broadcast_in_dim %largest, dims = [0] : (tensor<8xf32>) -> tensor<8x3xf32>
    %shifted = stablehlo.subtract %logits, %shift : tensor<8x3xf32>
    %powers = stablehlo.exponential %shifted : tensor<8x3xf32>
    %total = stablehlo.reduce(%powers init: %zero) applies stablehlo.add across dimensions = [1]
      : (tensor<8x3xf32>, tensor<f32>) -> tensor<8xf32>
    %totals = stablehlo.broadcast_in_dim %total, dims = [0] : (tensor<8xf32>) -> tensor<8x3xf32>
    %probabilities = stablehlo.divide %powers, %totals : tensor<8x3xf32>
    return %probabilities : tensor<8x3xf32>
  }
}
