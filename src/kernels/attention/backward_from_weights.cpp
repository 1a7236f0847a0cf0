// dQ, dK and dV from weights P that are there and have an incoming gradient dW. A tile is rows of the
// weights, from the first key to the last that its queries see: nothing is computed again, nothing is
// transposed, and δ is a sum along a row.
//
//   for each panel of queries:
//     dP = dO Vᵀ                    without what dropout removes
//     δ  = rowsum(P ∘ (dP + dW))
//     dS = P ∘ (dP + dW − δ)        also added to the gradients of biases and slopes
//     dQ = scale · dS K
//     dV = dV + Pᵀ dO               P after dropout
//     dK = dK + scale · dSᵀ Q

#include <algorithm>
#include <functional>
#include <utility>

#include "kernels/attention/logit_gradients.h"
#include "kernels/attention/passes.h"
#include "kernels/attention/row_inputs.h"
#include "kernels/gemm/operands.h"
#include "kernels/gemm/scratch.h"

namespace attentive::kernels::cpu {
namespace {

constexpr int64_t kPanelRows = 48;                      // queries of a panel
constexpr int64_t kPartQueries = 512, kMostParts = 16;  // a head has one part per so many queries
constexpr int64_t kValuePanel = 64;                     // values per panel of Vᵀ

// Tile sizes, and the parts into which the queries of a head are dealt, depend only on the shape of the head,
// so that its gradients have the same bits whatever else the call contains.
class BackwardFromWeights {
 public:
  BackwardFromWeights(const Call& call, const BackwardTensors<float>& tensors)
      : call_(call),
        t_(tensors),
        wide_(round_up(call.S, kValuePanel)),
        rows_(std::min(kPanelRows, call.L)),
        panels_((call.L + rows_ - 1) / rows_),
        parts_(std::clamp<int64_t>((call.L + kPartQueries - 1) / kPartQueries, 1,
                                   std::min(kMostParts, panels_))),
        slot_size_(call.S *
                   (call.D + call.Dv +
                    call.group * ((tensors.logits.by_key ? 1 : 0) + (tensors.logits.slopes ? 1 : 0)))) {}

  void run() const {
    const bool parallel = call_.worth_threads(2 * (call_.D + call_.Dv));
    const int64_t bytes = parts_ * slot_size_ * static_cast<int64_t>(sizeof(float));
    for_each_batch_of_heads(call_, t_.logits.pair_sums, [&](const HeadBatch& batch) {
      compute_batch_of_heads(
          batch, {parts_, bytes, parallel}, [&](int64_t head) { whole(head); },
          [&](int64_t first, int64_t count) { share(batch, first, count, parallel); });
    });
  }

 private:
  // Sums over the queries of one part of a key head.
  struct Slot {
    Matrix<float> grad_k, grad_v;
    Matrix<float> by_key, slopes;  // see LogitGradients; a row per query head of the group, or none
  };
  Slot slot_at(float* memory) const {
    const auto take = [&](int64_t rows, int64_t cols) {
      return Matrix<float>{std::exchange(memory, memory + rows * cols), rows, cols, cols};
    };
    const int64_t by_key = t_.logits.by_key ? call_.group : 0, slopes = t_.logits.slopes ? call_.group : 0;
    return {take(call_.S, call_.D), take(call_.S, call_.Dv), take(by_key, call_.S), take(slopes, call_.S)};
  }

  // A key head as the products read it.
  struct Head {
    int64_t b, hkv;
    Matrix<const float> k;
    bool finite;        // whether all keys are finite
    float* transposed;  // Vᵀ, in panels of kValuePanel values that are an rhs (Dv, kValuePanel)
  };
  // The buffers of a panel of queries.
  struct Workspace {
    Matrix<float> products, dropped;  // dP, which becomes dS; P after dropout
    float *q_copy, *grad_copy, *clean_k;
    float *grad_weights, *logits;  // a row each; null: not needed
    RowInputs terms;
  };
  Head pack(int64_t kv_head, Scratch& scratch) const {
    const int64_t b = kv_head / call_.Hkv, hkv = kv_head % call_.Hkv;
    const auto k = rows_of(t_.k, b, hkv, 0, call_.S, call_.D);
    const Head head{b, hkv, lhs_of(k, scratch.take<float>(call_.S * call_.D)), elementwise().all_finite(k),
                    scratch.take<float>(wide_ * call_.Dv)};
    for (int64_t j = 0; j < call_.S; j += kValuePanel) {
      pack_transposed(rows_of(t_.v, b, hkv, j, std::min(kValuePanel, call_.S - j), call_.Dv),
                      Rhs<float>{head.transposed + j * call_.Dv, call_.Dv, kValuePanel, kValuePanel});
    }
    return head;
  }
  Workspace workspace(Scratch& scratch) const {
    const int64_t stride = wide_ + 16;  // not a power of two, for which rows would share the same cache sets
    return {scratch.matrix<float>(rows_, wide_, stride),
            scratch.matrix<float>(rows_, wide_, stride),
            scratch.take<float>(rows_ * call_.D),
            scratch.take<float>(rows_ * call_.Dv),
            scratch.take<float>(call_.S * call_.D),
            t_.grad_weights.col == 1 ? nullptr : scratch.take<float>(wide_),
            t_.logits.any_of_tiles() ? scratch.take<float>(stride) : nullptr,
            {call_, scratch, 1, wide_, true}};
  }

  // One thread computes a whole key head. The parts are added in the same order as in `share`.
  void whole(int64_t kv_head) const {
    Scratch& scratch = Scratch::of_this_thread();
    scratch.reset();
    const int64_t slots = std::min<int64_t>(parts_, 2);
    float* const sums = scratch.take<float>(slots * slot_size_);
    const Head head = pack(kv_head, scratch);
    const Workspace work = workspace(scratch);
    for (int64_t part = 0; part < parts_; ++part) {
      float* const slot = sums + std::min<int64_t>(part, 1) * slot_size_;
      accumulate(head, work, part, slot);
      if (part > 0) elementwise().add(slot, sums, slot_size_);
    }
    write(head.b, head.hkv, slot_at(sums));
  }

  // All threads share `count` key heads of the batch from its head `first` on: they compute their parts, then
  // add these.
  void share(const HeadBatch& batch, int64_t first, int64_t count, bool parallel) const {
    thread_local Scratch arena;
    arena.reset();
    float* const all_sums = arena.take<float>(count * parts_ * slot_size_);
    for_each_item(count * parts_, parallel, [&](int64_t item) {
      Scratch& scratch = Scratch::of_this_thread();
      scratch.reset();
      const Head head = pack(batch.head(first + item / parts_), scratch);
      accumulate(head, workspace(scratch), item % parts_, all_sums + item * slot_size_);
    });
    for_each_item(count, parallel, [&](int64_t place) {
      const int64_t kv_head = batch.head(first + place);
      float* const sums = all_sums + place * parts_ * slot_size_;
      for (int64_t part = 1; part < parts_; ++part)
        elementwise().add(sums + part * slot_size_, sums, slot_size_);
      write(kv_head / call_.Hkv, kv_head % call_.Hkv, slot_at(sums));
    });
  }

  // Sums up every parts_-th panel of queries, so that under a causal mask all parts are about the same work.
  void accumulate(const Head& head, const Workspace& work, int64_t part, float* sums) const {
    std::fill_n(sums, slot_size_, 0.0f);
    const Slot slot = slot_at(sums);
    for (int64_t g = 0; g < call_.group; ++g) {
      for (int64_t panel = part; panel < panels_; panel += parts_)
        add_panel(head, work, slot, g, panel * rows_);
    }
  }

  void write(int64_t b, int64_t hkv, const Slot& slot) const {
    for (int64_t j = 0; j < call_.S; ++j) {
      elementwise().convert(slot.grad_k.row(j), t_.grad_k.at(b, hkv, j), call_.D);
      elementwise().convert(slot.grad_v.row(j), t_.grad_v.at(b, hkv, j), call_.Dv);
    }
    for (int64_t g = 0; g < call_.group; ++g) {
      const int64_t offset = call_.key_index(b, call_.query_head(hkv, g), 0);
      if (t_.logits.by_key) std::copy_n(slot.by_key.row(g), call_.S, t_.logits.by_key + offset);
      if (t_.logits.slopes)
        std::transform(slot.slopes.row(g), slot.slopes.row(g) + call_.S, t_.logits.slopes + offset,
                       std::negate());
    }
  }

  // The queries [i0, i0 + rows) of a head, and the keys [from, from + cols) that they may see.
  struct Tile {
    int64_t b, g, h, i0, rows, from, cols;  // head h is the g-th of its group
  };

  // Adds the queries of one panel to the gradients of all keys, and writes their own.
  void add_panel(const Head& head, const Workspace& work, const Slot& slot, int64_t g, int64_t i0) const {
    const int64_t h = call_.query_head(head.hkv, g), rows = std::min(rows_, call_.L - i0),
                  from = call_.key_lo(i0) / 16 * 16, to = call_.key_hi(head.b, i0 + rows - 1);
    const Tile tile{head.b, g, h, i0, rows, from, std::max<int64_t>(to - from, 0)};
    const auto grad_q = rows_of(t_.grad_q, head.b, h, i0, rows, call_.D);
    const auto grad = lhs_of(rows_of(t_.grad_output, head.b, h, i0, rows, call_.Dv), work.grad_copy);
    // The visible keys of a row begin and end at most one key later than those of the row before it, and the
    // queries of a key likewise.
    const int64_t first = call_.key_lo(i0 + rows - 1) - (rows - 1) - from,
                  last = call_.key_hi(head.b, i0) - from;

    // dP = dO Vᵀ
    const int64_t wide = round_up(tile.cols, 16);
    for (int64_t c = 0; c < wide;) {
      const int64_t in_panel = (from + c) % kValuePanel, count = std::min(kValuePanel - in_panel, wide - c);
      const Rhs<const float> v{head.transposed + (from + c - in_panel) * call_.Dv + in_panel, call_.Dv, count,
                               kValuePanel};
      gemm(grad, v, work.products.block(0, rows, c, count), Sums::Begin,
           {.columns = last - c, .first_column = first - c});
      c += count;
    }

    take_gradients(work, slot, tile);

    // dQ = scale · dS K
    const auto gradients = work.products.block(0, rows, 0, tile.cols),
               weights = work.dropped.block(0, rows, 0, tile.cols);
    if (tile.cols == 0) {
      for (int64_t r = 0; r < rows; ++r) std::fill_n(grad_q.row(r), call_.D, 0.0f);
      return;
    }
    gemm(gradients, keys_of(head, work, tile), grad_q, Sums::Begin, {.inner = last, .first_inner = first});

    // dV = dV + Pᵀ dO and dK = dK + scale · dSᵀ Q
    const int64_t first_query = call_.query_lo(to - 1) - (tile.cols - 1) - i0,
                  last_query = call_.query_hi(head.b, from) - i0;
    const BandBounds seen{.inner = last_query, .first_inner = first_query};
    const auto q = lhs_of(rows_of(t_.q, head.b, h, i0, rows, call_.D), work.q_copy);
    products().add_transposed(weights, as_rhs(grad), slot.grad_v.part(from, tile.cols), seen);
    products().add_transposed(gradients, as_rhs(q), slot.grad_k.part(from, tile.cols), seen);
  }

  // Turns products into dS, and takes the weights after dropout.
  void take_gradients(const Workspace& work, const Slot& slot, const Tile& tile) const {
    SoftmaxRow terms{.scores = nullptr, .cols = round_up(tile.cols, 16)};
    StoredWeightsRow row{};
    row.terms = &terms;
    row.survivor_scale = call_.survivor_scale;
    row.normalised = call_.normalise;
    for (int64_t r = 0; r < tile.rows; ++r) {
      const int64_t i = tile.i0 + r, offset = call_.row_index(tile.b, tile.h, i);
      work.terms.set(terms, 0, tile.b, tile.h, i, tile.from, tile.cols);
      row.weights = t_.weights + offset * call_.keys_of_head + tile.from;
      row.grad_weights = t_.grad_weights.at(tile.b, tile.h, i, tile.from);
      if (work.grad_weights) {
        widen_row(row.grad_weights, t_.grad_weights.col, work.grad_weights, tile.cols);
        row.grad_weights = work.grad_weights;
      }
      row.products = work.products.row(r);
      row.dropped = work.dropped.row(r);
      if (work.logits) row.logits = work.logits + tile.from;
      row.delta = t_.grad_logsumexp ? -t_.grad_logsumexp[offset] : 0.0f;
      rows_code().stored_weights_row(row);
      write_row_sums(call_, t_, tile.b, tile.h, i, row.delta);
      if (work.logits) write_logits(work, slot, tile, i, terms.distance);
    }
  }

  // Writes or adds the gradients of the logits of query i, which are there for the keys of the tile.
  void write_logits(const Workspace& work, const Slot& slot, const Tile& tile, int64_t i,
                    float distance) const {
    const auto& to = t_.logits;
    if (to.by_key || to.slopes) {
      const auto sums = [&](const Matrix<float>& x) {
        return x.rows > 0 ? x.row(tile.g) + tile.from : nullptr;
      };
      rows_code().add_logits(work.logits + tile.from, distance, sums(slot.by_key), sums(slot.slopes),
                             tile.cols);
    }
    std::fill_n(work.logits, tile.from, 0.0f);
    std::fill(work.logits + tile.from + tile.cols, work.logits + call_.S, 0.0f);
    if (to.pairs) std::copy_n(work.logits, call_.S, to.pairs.at(tile.b, tile.h, i));
    if (!to.pair_sums) return;
    float* const pairs = to.pair_sums.at(tile.b, tile.h, i);
    if (to.begins_sums(tile.b, tile.h)) {
      std::copy_n(work.logits, call_.S, pairs);
    } else {
      elementwise().add(work.logits, pairs, call_.S);
    }
  }

  // Returns the keys of a tile, with zeros for hidden ones that are not finite, since 0 * NaN is NaN.
  Rhs<const float> keys_of(const Head& head, const Workspace& work, const Tile& tile) const {
    const auto hidden = [&](int64_t c) {
      if (row_is_finite(head.k.row(tile.from + c), call_.D)) return false;
      for (int64_t r = 0; r < tile.rows; ++r) {
        if (work.dropped.row(r)[c] != 0 || work.products.row(r)[c] != 0) return false;
      }
      return true;
    };
    return rhs_of(head.k.part(tile.from, tile.cols), !head.finite, hidden, work.clean_k);
  }

  const Call& call_;
  const BackwardTensors<float>& t_;
  const int64_t wide_;  // keys, rounded up to whole panels
  const int64_t rows_;  // queries of a panel
  const int64_t panels_, parts_;
  const int64_t slot_size_;  // numbers
};

}  // namespace

void backward_from_weights(const Call& call, const BackwardTensors<float>& tensors) {
  BackwardFromWeights(call, tensors).run();
}

}  // namespace attentive::kernels::cpu
