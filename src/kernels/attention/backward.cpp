// dQ, dK and dV. The weights are recomputed from the statistics of the forward pass, m and ln ℓ of each
// query, in transposed tiles: a row is a key, so that m, ℓ and δ are vectors along it, and no row has to be
// reduced.
//
//   δ = rowsum(dO ∘ O)                        once per query
//   for each block of keys:
//     dK = dV = 0
//     for each panel of queries that may see the block:
//       Sᵀ  = K Qᵀ                            the same bits as in the forward pass
//       Pᵀ  = exp(scale · (Sᵀ − m) − ln ℓ)    0 where a key is hidden
//       dPᵀ = V dOᵀ                           times the dropout mask, which is drawn again
//       dSᵀ = Pᵀ ∘ (dPᵀ − δ)              also added to the gradients of biases and slopes
//       dV  = dV + Pᵀ dO                      P after dropout
//       dK  = dK + dSᵀ Q
//       dQᵀ = dQᵀ + Kᵀ dSᵀ

#include <array>

#include "kernels/attention/backward_heads.h"
#include "kernels/attention/logit_gradients.h"
#include "kernels/attention/user_functions.h"
#include "kernels/gemm/operands.h"

namespace attentive::kernels::cpu {
namespace {

constexpr int64_t kDiagonalKeys = 32;  // keys per strip of a tile on the diagonal

// The buffers of one thread that computes tiles. The rows of the matrices are keys of the block, unless
// stated otherwise.
template <class T>
struct BackwardWorkspace {
  Matrix<float> scores, products;  // Sᵀ and dPᵀ; for float, overwritten by Pᵀ and dSᵀ
  Matrix<T> weights, gradients;    // Pᵀ and dSᵀ
  Rhs<T> gradient_pairs;           // bfloat16: dSᵀ as an rhs
  Matrix<float> grad_k, grad_v;    // if there is one sweep
  T *k_copy, *v_copy;
  Matrix<T> k_transposed;
  Matrix<T> cleaned;                     // Kᵀ with zeros for keys that are hidden and not finite
  Matrix<uint16_t> drop;                 // a row per group of 16 keys, a column per query of the panel
  Matrix<uint8_t> keep;                  // a row per key, a column per query of the panel
  Matrix<float> bias;                    // likewise
  Matrix<float> grad_weights;            // likewise
  Matrix<float> logits;                  // gradients of the logits, likewise
  Matrix<float> user_inputs;             // inputs of the program's own scores, likewise
  Matrix<float> slopes;                  // derivatives of these scores by q·k, for a strip of keys
  const detail::CapturedView* captured;  // of the lane; null: no gradients of captured tensors
  Matrix<float> rows;  // a row per query of the panel: pairs on their way to or from the caller
};

// Tiles of a call may read or write these besides the operands of products.
struct TileTerms {
  bool grad_weights, logits;
  bool pairs;                            // whether pairs are read from or added to tensors of the caller
  const detail::CapturedView* captured;  // of the lane; null: no gradients of captured tensors
};

// Takes the buffers from this thread's scratch memory.
template <class T>
BackwardWorkspace<T> backward_workspace(const Call& call, const BackwardTiles& tiles,
                                        const TileTerms& terms) {
  Scratch& scratch = Scratch::of_this_thread();
  scratch.reset();
  const int64_t keys = tiles.keys, queries = tiles.queries;
  const int64_t stride = queries + 16;  // not a power of two, for which rows would share the same cache sets
  BackwardWorkspace<T> work{};
  work.scores = scratch.matrix<float>(keys, queries, stride);
  work.products = scratch.matrix<float>(keys, queries, stride);
  if constexpr (kIsBf16<T>) {
    work.weights = scratch.matrix<T>(keys, queries, stride);
    work.gradients = scratch.matrix<T>(keys, queries, stride);
    const auto pairs = scratch.matrix<T>(round_up(keys, 2), queries, stride);
    work.gradient_pairs = {pairs.data, pairs.rows, queries, stride};
  } else {
    work.weights = work.scores;
    work.gradients = work.products;
  }
  work.grad_k = scratch.matrix<float>(keys, call.D);
  work.grad_v = scratch.matrix<float>(keys, call.Dv);
  work.k_copy = scratch.take<T>(keys * inner<T>(call.D));
  work.v_copy = scratch.take<T>(keys * inner<T>(call.Dv));
  work.k_transposed = scratch.matrix<T>(call.D, keys);
  work.cleaned = scratch.matrix<T>(call.D, keys);
  work.drop = scratch.matrix<uint16_t>(call.dropout ? keys / 16 + 16 : 0, queries);
  work.keep = scratch.matrix<uint8_t>(call.keep || call.user.mask ? keys : 0, queries);
  work.bias = scratch.matrix<float>(call.bias ? keys : 0, queries, stride);
  work.grad_weights = scratch.matrix<float>(terms.grad_weights ? keys : 0, queries, stride);
  work.captured = terms.captured;
  work.logits = scratch.matrix<float>(terms.logits || terms.captured ? keys : 0, queries, stride);
  work.user_inputs = scratch.matrix<float>(terms.captured ? keys : 0, queries, stride);
  work.slopes = scratch.matrix<float>(call.user.score ? UserRows::kMostStripRows : 0, queries, stride);
  work.rows = scratch.matrix<float>(terms.pairs ? queries : 0, keys, keys + 16);
  return work;
}

template <class Stored, class T>
class Backward : BackwardHeads<Stored, T> {
  using Base = BackwardHeads<Stored, T>;
  using Base::blocks_of, Base::queries_of, Base::panels_of, Base::pairs_of, Base::reaches,
      Base::prefetch_terms;
  using Base::call_, Base::t_, Base::tiles_, Base::query_blocks_, Base::key_blocks_, Base::parts_,
      Base::queries_, Base::panel_size_;
  using Base::fits, Base::q_transposed, Base::grad_transposed, Base::q_rows, Base::grad_rows,
      Base::grad_q_transposed;
  using Base::maximum, Base::log_total, Base::delta;
  using Base::memory_for, Base::panels_of_sweep, Base::head_of, Base::pack, Base::add_slot,
      Base::write_grad_q;
  using typename Base::Blocks, typename Base::Group, typename Base::Head, typename Base::Range,
      typename Base::Sweep, typename Base::HeadMemory;

 public:
  using Base::Base;

  void run() const {
    for_each_batch_of_heads(call_, t_, [&](const HeadBatch& batch) { run(batch); });
  }

 private:
  void run(const HeadBatch& batch) const {
    const bool parallel = call_.worth_threads(2 * (call_.D + call_.Dv));
    if (const auto lanes = static_cast<int64_t>(t_.captured_lanes.size()); lanes > 0) {
      for_each_item(lanes, parallel, [&](int64_t lane) {
        const auto* const captured = t_.captured_lanes[static_cast<size_t>(lane)].data();
        for (int64_t n = lane; n < batch.count; n += lanes) whole(batch.head(n), captured);
      });
      return;
    }
    const int64_t bytes = call_.group * query_blocks_ * panel_size_ * static_cast<int64_t>(sizeof(T));
    compute_batch_of_heads(
        batch, {parts_, bytes, parallel}, [&](int64_t head) { whole(head); },
        [&](int64_t first, int64_t count) {
          share(memory_for(count, parts_), batch, first, count, parallel);
        });
  }

  // One thread computes a whole key head. The parts are added in the same order as in `share`. `captured`
  // receives the gradients of captured tensors; null: none.
  void whole(int64_t kv_head, const detail::CapturedView* captured = nullptr) const {
    const int64_t slots = std::min<int64_t>(parts_, 2), most = panels_of_sweep(slots);
    // Gradients of captured tensors are added up in the order of one sweep.
    if (captured || call_.group * query_blocks_ <= most) {
      const HeadMemory memory = memory_for(1, slots);
      return sweep({memory, 0, kv_head, captured}, {{0, call_.group}, {0, query_blocks_}});
    }
    const HeadMemory memory = memory_for(1, slots, 1, most);
    for (int64_t g = 0; g < call_.group; ++g) {
      for (int64_t panel = 0; panel < query_blocks_; panel += most)
        sweep({memory, 0, kv_head}, {{g, g + 1}, {panel, std::min(panel + most, query_blocks_)}});
    }
  }

  void sweep(const Group& group, const Sweep& now) const {
    const auto for_panels = [&](const auto& work) {
      for (int64_t g = now.heads.first; g < now.heads.end; ++g) {
        for (int64_t panel = now.panels.first; panel < now.panels.end; ++panel)
          work(head_of(group, g), panel);
      }
    };
    for_panels([&](const Head& head, int64_t panel) { begin(head, panel); });
    for (int64_t part = 0; part < parts_; ++part)
      accumulate(group, now, part, std::min<int64_t>(part, 1), AddUp::Now);
    gemm_done();
    for_panels([&](const Head& head, int64_t panel) { write_grad_q(head, panel); });
  }

  // All threads share `count` key heads of the batch from its head `first` on: they pack them, then compute
  // their parts, then add the parts.
  void share(const HeadMemory& memory, const HeadBatch& batch, int64_t first, int64_t count,
             bool parallel) const {
    const int64_t panels = call_.group * query_blocks_;
    const auto head_at = [&](int64_t item) {
      const int64_t place = item / panels;
      return head_of({memory, place, batch.head(first + place)}, item / query_blocks_ % call_.group);
    };
    for_each_item(count * panels, parallel,
                  [&](int64_t item) { begin(head_at(item), item % query_blocks_); });
    for_each_item(count * parts_, parallel, [&](int64_t item) {
      const int64_t place = item / parts_, part = item % parts_;
      accumulate({memory, place, batch.head(first + place)}, {{0, call_.group}, {0, query_blocks_}}, part,
                 part, AddUp::Later);
      gemm_done();
    });
    for_each_item(count * panels, parallel, [&](int64_t item) {
      const Head head = head_at(item);
      const int64_t panel = item % query_blocks_;
      for (int64_t part = 1; part < parts_; ++part) {
        if (reaches(head.b, part, panel)) add_slot(head, part, panel);
      }
      write_grad_q(head, panel);
    });
  }

  // A block of keys and their values.
  struct Keys {
    int64_t j0, count;
    Matrix<const T> k, v;
    bool finite;  // whether all keys of the block are finite
    bool fit;     // whether units may compute them: whether what some query sees of them is finite
    Matrix<float> grad_k, grad_v;
  };
  using Workspace = BackwardWorkspace<T>;
  Workspace workspace(const detail::CapturedView* captured) const {
    const bool weights = static_cast<bool>(t_.grad_weights), logits = static_cast<bool>(logits_),
               pairs = call_.bias || weights || logits_.writes_pairs();
    return backward_workspace<T>(call_, tiles_, {weights, logits, pairs, captured});
  }

  // Says when the sums of a part are added to those of part 0, in slot 0. Now: each panel as soon as no later
  // block of the part reaches it, while it is in the cache. Later: after all parts are complete.
  enum class AddUp { Now, Later };

  // Computes all blocks of keys of one part with the queries of a sweep.
  void accumulate(const Group& group, const Sweep& sweep, int64_t part, int64_t slot, AddUp add_up) const {
    const Workspace work = workspace(group.captured);
    const Head any = head_of(group, sweep.heads.first);
    int64_t cleared = 0;  // the sums of panels before it are initialised
    if (part == 0) {
      cleared = query_blocks_;
      for (int64_t g = sweep.heads.first; g < sweep.heads.end; ++g)
        std::fill_n(grad_q_transposed(head_of(group, g), slot, 0).data, call_.D * tiles_.queries * any.panels,
                    0.0f);
    }
    const Blocks blocks = blocks_of(part);
    for (int64_t block = blocks.first; block < blocks.end; block += blocks.step) {
      const Range seen = panels_of(any.b, block), panels = seen.within(sweep.panels);
      const bool begins = sweep.panels.first <= seen.first, ends = sweep.panels.end >= seen.end;
      if (panels.empty() && !(seen.empty() && begins)) continue;  // keys that no query sees get zeros
      const bool last = sweep.heads.end == call_.group && ends;
      const Keys keys = keys_of(any, block, work, sweep.heads.first == 0 && begins, group.memory.key_sums);
      // Panels before `complete` are reached by no later block of the part.
      const int64_t next = block + blocks.step;
      const Range later = next < blocks.end ? panels_of(any.b, next).within(sweep.panels) : Range{0, 0};
      const int64_t complete = later.empty() ? query_blocks_ : later.first;
      for (int64_t g = sweep.heads.first; g < sweep.heads.end; ++g) {
        const Head head = head_of(group, g);
        if (begins) logits_.begin_keys({head.b, head.h, 0, call_.L, keys.j0, keys.count});
        for (int64_t panel = panels.first; panel < panels.end; ++panel) {
          const auto sums = grad_q_transposed(head, slot, panel);
          if (panel >= cleared) std::fill_n(sums.data, call_.D * tiles_.queries, 0.0f);
          const bool last_of_head = panel + 1 == panels.end,
                     last_of_block = g + 1 == sweep.heads.end && last_of_head;
          Pairs upcoming{};
          if (!last_of_head) {
            upcoming = pairs_of(head, block, panel + 1);
          } else if (!last_of_block) {
            upcoming = pairs_of(head_of(group, g + 1), block, panels.first);
          } else if (!later.empty()) {
            upcoming = pairs_of(any, next, later.first);
          }
          add_panel(head, keys, work, slot, panel, pairs_of(head, block, panel),
                    {upcoming, last && last_of_block});
          if (part > 0 && add_up == AddUp::Now && panel < complete) add_slot(head, slot, panel);
        }
      }
      cleared = std::max(cleared, panels.end);
      if (last) write_grad_keys(any, keys);
    }
  }

  void write_grad_keys(const Head& head, const Keys& keys) const {
    for (int64_t r = 0; r < keys.count; ++r) {
      const auto put = [&](const float* row, auto& own, auto& shared, int64_t width) {
        const int64_t j = keys.j0 + r;
        shared ? elementwise().add(row, shared.at(0, head.hkv, j), width)
               : elementwise().convert(row, own.at(head.b, head.hkv, j), width);
      };
      put(keys.grad_k.row(r), t_.grad_k, t_.shared_grad_k, call_.D);
      put(keys.grad_v.row(r), t_.grad_v, t_.shared_grad_v, call_.Dv);
    }
  }

  // Starts a block of keys: makes K and V an lhs and transposes K. `first`: sets the gradients to zero. These
  // are in `sums` if blocks are swept more than once, otherwise in the workspace.
  Keys keys_of(const Head& head, int64_t block, const Workspace& work, bool first, float* sums) const {
    const int64_t j0 = block * tiles_.keys, count = std::min(tiles_.keys, call_.S - j0);
    const auto k = rows_of(t_.k, head.b, head.hkv, j0, count, call_.D);
    const auto v = rows_of(t_.v, head.b, head.hkv, j0, count, call_.Dv);
    const bool finite = elementwise().all_finite(k), fit = units_ && seen_is_finite(head.b, j0, k, finite, v);
    const auto gradients = [&](const Matrix<float>& one, int64_t before, int64_t width) {
      return sums ? Matrix<float>{sums + before * key_blocks_ * tiles_.keys + j0 * width, count, width, width}
                  : one.part(0, count);
    };
    const Keys keys{j0,
                    count,
                    lhs_of(k, work.k_copy),
                    lhs_of(v, work.v_copy),
                    finite,
                    fit,
                    gradients(work.grad_k, 0, call_.D),
                    gradients(work.grad_v, call_.D, call_.Dv)};
    products().transpose(keys.k.block(0, count, 0, call_.D), work.k_transposed);
    if (inner<T>(count) != count) {
      for (int64_t d = 0; d < call_.D; ++d) work.k_transposed.row(d)[count] = 0;
    }
    if (first) {
      std::fill_n(keys.grad_k.data, count * call_.D, 0.0f);
      std::fill_n(keys.grad_v.data, count * call_.Dv, 0.0f);
    }
    return keys;
  }

  // Whether the keys and values from j0 on are finite, of those that some query may see by position and
  // length. `all_keys`: whether all of the keys are.
  bool seen_is_finite(int64_t b, int64_t j0, const Matrix<const Stored>& k, bool all_keys,
                      const Matrix<const Stored>& v) const {
    const auto seen = [&](int64_t n) { return call_.query_lo(j0 + n) < call_.query_hi(b, j0 + n); };
    int64_t first = 0, end = k.rows;
    while (first < end && !seen(first)) ++first;
    while (first < end && !seen(end - 1)) --end;
    const auto finite = [&](const auto& rows) {
      return elementwise().all_finite(rows.part(first, end - first));
    };
    return (all_keys || finite(k)) && finite(v);
  }

  // The work after a panel, whose numbers are fetched beside it.
  struct After {
    Pairs pairs;        // of the next panel; no queries: there is none
    bool last_of_keys;  // whether the gradients of the keys are written
  };
  // The keys [r0, r0 + keys) of a block and the queries [from, to) of a panel.
  struct Tile {
    int64_t panel, r0, keys, from, to;
    bool masked;  // whether a mask of pairs is tested
    After after;
  };

  // Adds the queries of one panel to the gradients of a block of keys.
  void add_panel(const Head& head, const Keys& keys, const Workspace& work, int64_t slot, int64_t panel,
                 const Pairs& part, const After& after) const {
    const int64_t p0 = panel * tiles_.queries, j0 = keys.j0, last = j0 + keys.count - 1;
    const int64_t from = part.i0, to = from + part.queries;
    const auto of_part = [&](const auto& x) { return x.block(0, x.rows, from - p0, to - from); };
    const int kind = call_.block_of(head.b, head.h, from, j0);
    const bool visible = kind != detail::BlockClasses::Empty &&
                         (!call_.keep || transpose_keep(call_.keep, part, of_part(work.keep)));
    const bool tested = kind == detail::BlockClasses::Partial;
    const bool whole = call_.query_lo(last) <= from + kDiagonalKeys &&
                       call_.query_hi(head.b, j0) >= to - kDiagonalKeys &&
                       call_.query_hi(head.b, last) >= to - kDiagonalKeys;
    begin_pairs(part, {p0, std::min(p0 + tiles_.queries, call_.L)}, visible && whole);
    if (!visible) return;
    if (tested) transpose_user_mask(call_, part, of_part(work.keep));
    const bool masked = call_.keep || tested;
    if (call_.bias) {
      for_element(call_.bias.element, [&](auto type) {
        transpose_numbers(call_.bias.template as<decltype(type)>(), part, work.rows, of_part(work.bias));
      });
    }
    if (t_.grad_weights) transpose_numbers(t_.grad_weights, part, work.rows, of_part(work.grad_weights));
    if (call_.dropout) {
      call_.dropout_bits(head.b, head.h, from, to - from, j0, last + 1, work.drop.data + from - p0, 1,
                         work.drop.stride);
    }
    if (whole) {
      add_tile(head, keys, work, slot, {panel, 0, keys.count, from, to, masked, after});
      return;
    }
    for (int64_t r = 0; r < keys.count; r += kDiagonalKeys) {
      const int64_t strip = std::min(kDiagonalKeys, keys.count - r), j = j0 + r;
      int64_t end = 0;
      for (int64_t x = 0; x < strip; ++x) end = std::max(end, call_.query_hi(head.b, j + x));
      add_tile(
          head, keys, work, slot,
          {panel, r, strip, std::max(from, call_.query_lo(j) / 16 * 16), std::min(to, end), masked, after});
    }
  }

  // Packs a panel of queries, and sets the gradients of their pairs with blocks of keys that none of them may
  // see to zero, along whole rows.
  void begin(const Head& head, int64_t panel) const {
    pack(head, panel);
    if (!logits_.writes_pairs()) return;
    const int64_t i0 = panel * tiles_.queries, queries = std::min(tiles_.queries, call_.L - i0);
    const auto seen = [&](int64_t block) { return panels_of(head.b, block).has(panel); };
    for (int64_t block = 0; block < key_blocks_;) {
      int64_t end = block;
      while (end < key_blocks_ && !seen(end)) ++end;
      const int64_t j0 = block * tiles_.keys;
      if (end > block)
        logits_.clear_pairs({head.b, head.h, i0, queries, j0, std::min(end * tiles_.keys, call_.S) - j0},
                            /*last=*/true);
      block = end + 1;
    }
  }

  // Sets the gradients of the pairs of some queries and a block of keys to zero.
  void clear_pairs(Pairs pairs, const Range& queries) const {
    pairs.i0 = queries.first;
    pairs.queries = queries.end - queries.first;
    logits_.clear_pairs(pairs, /*last=*/false);
  }

  // Does so for a panel, except for those that one tile will write.
  void begin_pairs(const Pairs& tile, const Range& panel, bool written) const {
    if (!written || logits_.adds_to_pairs()) return clear_pairs(tile, panel);
    clear_pairs(tile, {panel.first, tile.i0});
    clear_pairs(tile, {tile.i0 + tile.queries, panel.end});
  }

  void add_tile(const Head& head, const Keys& keys, const Workspace& work, int64_t slot,
                const Tile& tile) const {
    if (tile.from >= tile.to) return;
    const int64_t n = tile.keys, offset = tile.from - tile.panel * tiles_.queries,
                  count = tile.to - tile.from;
    const int64_t wide = std::min(round_up(count, 16), tiles_.queries - offset);
    const auto of_panel = [&](const Rhs<T>& x) { return x.block(0, x.rows, offset, wide); };

    // The range of queries that see a key begins and ends at most one query later than that of the key before
    // it.
    const int64_t j = keys.j0 + tile.r0, first = call_.query_lo(j + n - 1) - (n - 1) - tile.from,
                  last = call_.query_hi(head.b, j) - tile.from;
    const BandBounds seen{.columns = last, .first_column = first},
        from_weights{.inner = last, .first_inner = first};

    // Sᵀ = K Qᵀ and dPᵀ = V dOᵀ
    gemm(keys.k.part(tile.r0, n), of_panel(q_transposed(head, tile.panel)), work.scores.block(0, n, 0, wide),
         Sums::Begin, seen);
    gemm(keys.v.part(tile.r0, n), of_panel(grad_transposed(head, tile.panel)),
         work.products.block(0, n, 0, wide), Sums::Begin, seen);

    // Pᵀ = exp(scale · (Sᵀ − m) − ln ℓ) and dSᵀ = Pᵀ ∘ (dPᵀ − δ)
    const bool by_units = keys.fit && *fits(head, tile.panel) != 0.0f;
    by_units ? take_unit_gradients(head, keys, work, tile, offset, wide)
             : take_gradients(head, keys, work, tile, offset, wide);
    if (work.captured) take_captured_gradients(head, keys, work, tile, offset);
    if (logits_) {
      logits_.add({head.b, head.h, tile.from, count, keys.j0 + tile.r0, n},
                  work.logits.block(tile.r0, n, offset, count), work.rows);
    }

    // dV = dV + Pᵀ dO and dK = dK + dSᵀ Q
    const int64_t queries = kIsBf16<T> ? wide : count;  // beyond `count`, both factors are zero
    const auto rows_of = [&](const Rhs<T>& x) { return x.block(offset, queries, 0, x.cols); };
    gemm(work.weights.block(0, n, 0, queries), rows_of(grad_rows(head, tile.panel)),
         keys.grad_v.part(tile.r0, n), Sums::Continue, from_weights);
    gemm(work.gradients.block(0, n, 0, queries), rows_of(q_rows(head, tile.panel)),
         keys.grad_k.part(tile.r0, n), Sums::Continue, from_weights);

    // dQᵀ = dQᵀ + Kᵀ dSᵀ
    const auto k_transposed = keys.finite ? work.k_transposed.block(0, call_.D, tile.r0, inner<T>(n))
                                          : clean_keys(keys, work, tile.r0, n, count);
    gemm(k_transposed, as_rhs_of_keys(work, n, wide, by_units),
         grad_q_transposed(head, slot, tile.panel).block(0, call_.D, offset, wide), Sums::Continue,
         {.inner_of_column = 1 - first});
  }

  // Turns scores and products into Pᵀ and dSᵀ. Each row is set up as in RowInputs::set, transposed.
  void take_gradients(const Head& head, const Keys& keys, const Workspace& work, const Tile& tile,
                      int64_t offset, int64_t wide) const {
    GradientRow row{.scores = nullptr, .products = nullptr};
    row.cols = wide;
    row.rule = call_.rule_of(head.b, head.h);
    row.survivor_scale = call_.survivor_scale;
    row.maximum = maximum(head, tile.from);
    row.log_total = log_total(head, tile.from);
    row.delta = delta(head, tile.from);
    row.of_dropped = t_.of_dropped;
    row.normalised = call_.normalise;
    UserRows user_rows(call_, UserRows::Along::Queries);
    const Pairs pairs{head.b, head.h, tile.from, tile.to - tile.from, keys.j0 + tile.r0, tile.keys};
    const int64_t written = logits_.writes_pairs() ? (pairs.queries + tile.keys - 1) / tile.keys : 0;
    int64_t asked = tile.from;  // rows of the caller's gradients are asked for a few at a time
    for (int64_t r = 0; r < tile.keys; ++r) {
      const int64_t in_block = tile.r0 + r, j = keys.j0 + in_block;
      prefetch_terms(tile.after.pairs, in_block);
      for (const int64_t end = std::min(asked + written, tile.to); asked < end; ++asked)
        logits_.prefetch(pairs, asked);
      row.scores = work.scores.row(r);
      row.products = work.products.row(r);
      if constexpr (kIsBf16<T>) {
        row.weights16 = work.weights.row(r);
        row.gradients16 = work.gradients.row(r);
      }
      const auto range = range_of_key(head, tile, j);
      row.lo = range.lo;
      row.hi = range.hi;
      row.distance = static_cast<float>(call_.band.position(tile.from) - j);
      if (call_.bias) row.bias = work.bias.row(in_block) + offset;
      if (tile.masked) row.keep = work.keep.row(in_block) + offset;
      if (t_.grad_weights) row.grad_weights = work.grad_weights.row(in_block) + offset;
      if (logits_ || work.captured) row.logits = work.logits.row(in_block) + offset;
      if (call_.user.score) {
        const int64_t in_strip = r % UserRows::kMostStripRows;
        if (in_strip == 0) take_user_scores(user_rows, head, keys, work, tile, r, offset);
        row.slopes = work.slopes.row(in_strip);
      }
      if (call_.dropout) {
        row.drop = drop_row(keys, work, j) + offset;
        row.drop_bit = static_cast<int>(j % 16);
      }
      prefetch_keys(head, keys, tile, in_block);
      rows_code().gradient_row(row);
    }
  }

  // Asks for the rows of a key's gradients if they are written after this tile, and for a key of the next
  // block.
  void prefetch_keys(const Head& head, const Keys& keys, const Tile& tile, int64_t in_block) const {
    if (!tile.after.last_of_keys) return;
    const int64_t j = keys.j0 + in_block;
    prefetch_to_write(t_.grad_k.at(head.b, head.hkv, j), call_.D);
    prefetch_to_write(t_.grad_v.at(head.b, head.hkv, j), call_.Dv);
    const auto& next = tile.after.pairs;
    if (in_block < next.keys && next.queries > 0) {
      prefetch_row(t_.k.at(head.b, head.hkv, next.j0 + in_block), 1, call_.D);
      prefetch_row(t_.v.at(head.b, head.hkv, next.j0 + in_block), 1, call_.Dv);
    }
  }

  // Does the same by units.
  void take_unit_gradients(const Head& head, const Keys& keys, const Workspace& work, const Tile& tile,
                           int64_t offset, int64_t wide) const {
    if constexpr (kIsBf16<T>) {
      UnitGradientRow rows[kMostOfTile];
      for (int64_t r = 0; r < tile.keys; ++r) {
        const int64_t in_block = tile.r0 + r, j = keys.j0 + in_block;
        const auto range = range_of_key(head, tile, j);
        rows[r] = {static_cast<int32_t>(range.lo), static_cast<int32_t>(range.hi),
                   call_.dropout ? drop_row(keys, work, j) + offset : nullptr, static_cast<int>(j % 16)};
        prefetch_keys(head, keys, tile, in_block);
      }
      const float scale = call_.rule.scale;
      units_->gradients({tile.keys, wide, rows, work.scores, work.products, maximum(head, tile.from),
                         log_total(head, tile.from), delta(head, tile.from), scale * kLog2e, scale,
                         call_.survivor_scale, work.weights, work.gradients, work.gradient_pairs});
    }
  }

  // Dropout's bits of the group of 16 keys that holds key j, one number per query of the panel.
  static const uint16_t* drop_row(const Keys& keys, const Workspace& work, int64_t j) {
    return work.drop.row(j % 128 / 16 + (j / 128 - keys.j0 / 128) * 8);
  }

  // The columns of a tile whose queries see key j by position.
  detail::CallbackRange range_of_key(const Head& head, const Tile& tile, int64_t j) const {
    return {std::max<int64_t>(call_.query_lo(j) - tile.from, 0),
            std::clamp<int64_t>(call_.query_hi(head.b, j) - tile.from, 0, tile.to - tile.from)};
  }

  // Turns the raw scores of a strip of a tile, from its row r on, into those of the program's own function.
  void take_user_scores(UserRows& user_rows, const Head& head, const Keys& keys, const Workspace& work,
                        const Tile& tile, int64_t r, int64_t offset) const {
    const int64_t j = keys.j0 + tile.r0 + r, rows = std::min(UserRows::kMostStripRows, tile.keys - r),
                  wide = tile.to - tile.from;
    std::array<detail::CallbackRange, UserRows::kMostStripRows> ranges;
    for (int64_t n = 0; n < rows; ++n) ranges[static_cast<size_t>(n)] = range_of_key(head, tile, j + n);
    user_rows.scores_of_keys(
        {head.b, head.h, tile.from, wide, j, rows}, ranges.data(), work.scores.part(r, rows), work.slopes,
        work.captured ? work.user_inputs.block(tile.r0 + r, rows, offset, wide) : Matrix<float>{});
  }

  void take_captured_gradients(const Head& head, const Keys& keys, const Workspace& work, const Tile& tile,
                               int64_t offset) const {
    UserRows user_rows(call_, UserRows::Along::Queries);
    for (int64_t r = 0; r < tile.keys; ++r) {
      const int64_t in_block = tile.r0 + r, j = keys.j0 + in_block;
      user_rows.add_captured_gradients(
          {head.b, head.h, tile.from, tile.to - tile.from, j, 1}, range_of_key(head, tile, j), work.captured,
          work.user_inputs.row(in_block) + offset, work.logits.row(in_block) + offset);
    }
  }

  // Returns dSᵀ as an rhs whose rows are the tile's keys. `packed`: it has been packed.
  Rhs<const T> as_rhs_of_keys(const Workspace& work, int64_t keys, int64_t wide, bool packed) const {
    const auto gradients = work.gradients.block(0, keys, 0, wide);
    if constexpr (kIsBf16<T>) {
      const auto pairs = work.gradient_pairs.block(0, inner<T>(keys), 0, wide);
      if (!packed) products().pack_rows(gradients, pairs);
      return pairs;
    } else {
      return as_rhs(gradients);
    }
  }

  // Returns Kᵀ with zeros for hidden keys that are not finite, since 0 * NaN is NaN.
  Matrix<T> clean_keys(const Keys& keys, const Workspace& work, int64_t r0, int64_t count,
                       int64_t queries) const {
    for (int64_t r = 0; r < inner<T>(count); ++r) {
      bool seen = false;
      if (r < count) {
        seen = row_is_finite(keys.k.row(r0 + r), call_.D);
        for (int64_t c = 0; c < queries && !seen; ++c)
          seen = work.weights.row(r)[c] != 0 || work.gradients.row(r)[c] != 0;
      }
      for (int64_t d = 0; d < call_.D; ++d)
        work.cleaned.row(d)[r] = seen ? work.k_transposed.row(d)[r0 + r] : T{0};
    }
    return work.cleaned.block(0, call_.D, 0, inner<T>(count));
  }

  // The code of units, if it knows every option of this call.
  const UnitFunctions* units_of_call() const {
    const bool known = kIsBf16<T> && only_scaled(call_) && !call_.keep && !t_.grad_weights && !logits_ &&
                       t_.captured_lanes.empty();
    return known ? selection().units : nullptr;
  }

  const LogitGradientWriter<Stored> logits_{this->call_, this->t_.logits};
  const UnitFunctions* const units_ = units_of_call();
};

}  // namespace

template <class T>
void backward(const Call& call, const BackwardTensors<T>& tensors) {
  for_operands<T>([&](auto operand) { Backward<T, decltype(operand)>(call, tensors).run(); });
}

template void backward<float>(const Call&, const BackwardTensors<float>&);
template void backward<bf16_t>(const Call&, const BackwardTensors<bf16_t>&);
template void backward<f16_t>(const Call&, const BackwardTensors<f16_t>&);

}  // namespace attentive::kernels::cpu
