#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "distributed/c10d_backends.h"

namespace attentive::c10d_internals {

struct BucketUnderWay {
  at::Tensor bucket;
  c10::intrusive_ptr<c10d::Work> work;
};

namespace {

// Averages the buckets in place of c10d's default, for two reasons. The default multiplies a gradient by 1 /
// W if it is new, but divides it by W if it was zeroed in place, which gives different bits for three
// processes. And over NCCL it keeps only futures, which are complete as soon as a call has been queued on the
// device and do not report that it fails there.
class Mean final : public c10d::CppCommHookInterface<c10::intrusive_ptr<c10d::Backend>> {
 public:
  Mean(c10::intrusive_ptr<c10d::Backend> backend, std::shared_ptr<std::vector<BucketUnderWay>> under_way)
      : CppCommHookInterface(std::move(backend)), under_way_(std::move(under_way)) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    std::vector<at::Tensor> buckets{bucket.getBuffer()};
    buckets[0].div_(state_->getSize());
    under_way_->push_back({buckets[0], state_->allreduce(buckets)});
    return under_way_->back().work->getFuture();
  }

 private:
  std::shared_ptr<std::vector<BucketUnderWay>> under_way_;
};

}  // namespace

struct Reducer::State {
  std::vector<at::Tensor> parameters;
  std::shared_ptr<c10d::Reducer> reducer;
  std::shared_ptr<c10d::Logger> logger;
  std::unordered_map<const torch::autograd::Node*, size_t> accumulators;  // to the parameters' indices
  std::shared_ptr<Backends> backends;
  std::shared_ptr<std::vector<BucketUnderWay>> under_way = std::make_shared<std::vector<BucketUnderWay>>();
};

Reducer::Reducer(std::vector<at::Tensor> parameters, const std::vector<std::string>& names,
                 const Collectives& collectives, int64_t bucket_bytes, int64_t first_bucket_bytes)
    : state_(std::make_shared<State>()) {
  // The backward pass computes the gradients of the last parameters first.
  std::reverse(parameters.begin(), parameters.end());
  std::unordered_map<size_t, std::string> names_by_index;
  for (size_t i = 0; i < names.size(); ++i) names_by_index[names.size() - 1 - i] = names[i];
  const std::vector<bool> sparse(parameters.size(), false);
  auto buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(
      parameters, {static_cast<size_t>(first_bucket_bytes), static_cast<size_t>(bucket_bytes)}, sparse));
  state_->reducer = std::make_shared<c10d::Reducer>(
      parameters, std::move(buckets), collectives.backends_->process_group, sparse, bucket_bytes,
      /*find_unused_parameters=*/false, /*gradient_as_bucket_view=*/true, std::move(names_by_index),
      first_bucket_bytes,
      /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false,
      /*bucket_bytes_cap_list=*/std::vector<int64_t>());
  state_->logger = std::make_shared<c10d::Logger>(state_->reducer);
  state_->logger->set_construction_data_and_log("DataParallel", {}, -1, false, false, false);
  state_->reducer->set_logger(state_->logger);
  state_->backends = collectives.backends_;
  state_->reducer->register_comm_hook(std::make_unique<Mean>(
      parameters[0].is_cuda() ? state_->backends->nccl : state_->backends->gloo, state_->under_way));

  // Fixes the parameters' places in the buckets now. Otherwise c10d records the order in which gradients
  // arrive and rebuilds its buckets from it once; as Gloo's sum over more than two processes depends on the
  // place in a bucket, a resumed run would then sum differently from an uninterrupted one.
  state_->reducer->push_rebuilt_params_for_all_indices();
  state_->reducer->rebuild_buckets();

  std::reverse(parameters.begin(), parameters.end());
  for (size_t i = 0; i < parameters.size(); ++i) {
    state_->accumulators[torch::autograd::impl::grad_accumulator(parameters[i]).get()] = i;
  }
  state_->parameters = std::move(parameters);
}

std::vector<bool> Reducer::reached_by(const at::Tensor& loss) const {
  std::vector<bool> reached(state_->parameters.size(), false);
  std::unordered_set<const torch::autograd::Node*> seen;
  std::vector<const torch::autograd::Node*> open;
  const auto visit = [&](const torch::autograd::Node* node) {
    if (node == nullptr || !seen.insert(node).second) return;
    const auto accumulator = state_->accumulators.find(node);
    if (accumulator == state_->accumulators.end()) {
      open.push_back(node);
    } else {
      reached[accumulator->second] = true;
    }
  };
  visit(torch::autograd::impl::gradient_edge(loss).function.get());
  while (!open.empty()) {
    const auto* node = open.back();
    open.pop_back();
    for (const auto& edge : node->next_edges()) visit(edge.function.get());
  }
  return reached;
}

void Reducer::backward(const at::Tensor& loss) {
  state_->logger->set_runtime_stats_and_log();
  state_->reducer->prepare_for_forward();
  state_->reducer->prepare_for_backward({});
  auto& under_way = *state_->under_way;
  under_way.clear();
  try {
    loss.backward();
  } catch (const std::exception& error) {  // of the pass, or of a bucket that it waits for
    // Gloo tells the future, for which the pass waits, before it tells the work.
    const bool failed = dynamic_cast<const c10::DistError*>(&error) != nullptr ||
                        std::any_of(under_way.begin(), under_way.end(), [](const auto& bucket) {
                          return bucket.work->exception() != nullptr || bucket.work->getFuture()->hasError();
                        });
    if (!failed) throw;
    throw CallError(distributed::first_line(error));
  }
  for (const auto& [bucket, work] : under_way) state_->backends->wait(*work, bucket);
  under_way.clear();
}

int64_t Reducer::buckets() const {
  return static_cast<int64_t>(state_->logger->get_bucket_sizes().size());
}

double Reducer::overlap() const {
  const auto data = state_->logger->get_ddp_logging_data();
  const auto number = [&](const char* key) {
    const auto found = data.ints_map.find(key);
    return found == data.ints_map.end() ? 0.0 : static_cast<double>(found->second);
  };
  const double communication = number("avg_backward_comm_time");
  return communication > 0 ? number("avg_backward_compute_comm_overlap_time") / communication : 0;
}

}  // namespace attentive::c10d_internals
