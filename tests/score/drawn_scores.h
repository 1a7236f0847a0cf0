#pragma once

// Score and mask functions that tools/generators/draw_scores.py draws.

#include <string>
#include <vector>

#include <attentive/score/score_mod.h>

namespace attentive::test {

/// The tensors that drawn functions capture, with numbers in [-1, 1], for B batch items, H heads and S keys.
struct DrawnTensors {
  at::Tensor number;     ///< no dimensions
  at::Tensor heads;      ///< (H)
  at::Tensor tokens;     ///< (S)
  at::Tensor pairs;      ///< (S, S)
  at::Tensor distances;  ///< (2 S)
  at::Tensor by_head;    ///< (H, S)
  at::Tensor all;        ///< (B, H, S, S)
  at::Tensor kinds;      ///< (4)
  at::Tensor documents;  ///< (S), int64, in [0, 4)

  std::vector<at::Tensor*> numbers() {
    return {&number, &heads, &tokens, &pairs, &distances, &by_head, &all, &kinds};
  }
};

/// The tensors as a lambda captures them.
struct DrawnCaptures {
  explicit DrawnCaptures(const DrawnTensors& t)
      : number(captured(t.number)),
        heads(captured(t.heads)),
        tokens(captured(t.tokens)),
        pairs(captured(t.pairs)),
        distances(captured(t.distances)),
        by_head(captured(t.by_head)),
        all(captured(t.all)),
        kinds(captured(t.kinds)),
        documents(captured_indices(t.documents)) {}

  Captured number, heads, tokens, pairs, distances, by_head, all, kinds;
  CapturedIndices documents;
};

struct DrawnFunctions {
  ScoreMod score;
  MaskMod mask;  ///< may be empty
  std::string text;
};

/// The generated functions.
extern const int64_t kDrawnSeed;
extern const std::vector<DrawnFunctions (*)(const DrawnTensors&)> kDrawn;

/// Compares the native kernel, in float32 and for every instruction set of this CPU, with the reference in
/// float64: the output, with and without a graph, and the gradients of q, k, v and captured tensors, whose
/// second derivatives have to be finite. `number` chooses shapes and options.
void check_functions(DrawnFunctions (*make)(const DrawnTensors&), size_t number);

}  // namespace attentive::test
