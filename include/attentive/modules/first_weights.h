#pragma once

namespace attentive {

/// While an object of this class lives, modules of this package that the same thread builds draw no first
/// weights: their parameters have the right shapes, undefined values, and no random number is drawn. Use it
/// for a model whose weights are loaded next: drawing the weights of a large model takes longer than reading
/// them, and memory that is never written takes no physical memory.
///
///   std::optional<attentive::NoFirstWeights> guard(std::in_place);
///   attentive::Llama model(options);
///   guard.reset();
///   attentive::load_state_dict(*model, state);
class NoFirstWeights {
 public:
  NoFirstWeights();
  ~NoFirstWeights();
  NoFirstWeights(const NoFirstWeights&) = delete;
  NoFirstWeights& operator=(const NoFirstWeights&) = delete;
};

}  // namespace attentive
