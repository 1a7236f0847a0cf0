// attentive-vit-digits: a vision transformer learns to read handwritten digits of 8 x 8 pixels.

#include <algorithm>
#include <chrono>
#include <cstdio>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <attentive/files/safetensors.h>
#include <attentive/models/model_folder.h>
#include <attentive/models/vit.h>
#include <attentive/train/adamw.h>

#include "common/device.h"
#include "common/flags.h"
#include "common/run_main.h"

namespace {

using namespace attentive;

struct Settings {
  std::string data;
  std::string save;
  int64_t epochs = 150;
  int64_t batch = 64;
  double learning_rate = 1e-3;
  double test_share = 0.2;
  uint64_t seed = 0;
  int threads = 0;
  std::string device = "auto";
  int64_t emb_dim = 64, num_heads = 4, num_layers = 4;
  double dropout = 0.1;
};

void declare(CLI::App& app, Settings& s) {
  app.add_option("--data", s.data, "File of tools/users/export_digits.py")->required();
  app.add_option("--save", s.save, "Write the trained model as a folder that Python and attentive-view load");
  app.add_option("--epochs", s.epochs)->check(apps::whole_number(1, 1'000'000'000))->capture_default_str();
  app.add_option("--batch", s.batch)->check(apps::whole_number(1, apps::kMostRows))->capture_default_str();
  app.add_option("--lr", s.learning_rate)->check(apps::number(0, apps::kHighestRate))->capture_default_str();
  app.add_option("--test-share", s.test_share, "Images that are only looked at in the end")
      ->check(apps::number(0.01, 0.9))
      ->capture_default_str();
  app.add_option("--seed", s.seed, "Seed of the split, the initial weights, the batches and dropout")
      ->check(apps::seed_number())
      ->capture_default_str();
  apps::add_threads(app, s.threads);
  apps::add_device(app, s.device);
  app.add_option("--layers", s.num_layers)
      ->check(apps::whole_number(1, apps::kMostLayers))
      ->capture_default_str();
  app.add_option("--heads", s.num_heads)
      ->check(apps::whole_number(1, apps::kMostHeads))
      ->capture_default_str();
  app.add_option("--width", s.emb_dim)->check(apps::whole_number(1, apps::kMostWidth))->capture_default_str();
  app.add_option("--dropout", s.dropout)->check(apps::number(0, 1))->capture_default_str();
}

struct Digits {
  at::Tensor images;  // (N, 1, 8, 8), float32, 0 to 1
  at::Tensor labels;  // (N), int64
};

Digits read_digits(const std::string& path) {
  const auto file = load_safetensors(path);
  const auto take = [&](const char* name, int64_t rank) {
    const auto found = file.tensors.find(name);
    TORCH_CHECK_VALUE(found != file.tensors.end() && found->second.dim() == rank &&
                          found->second.scalar_type() == at::kByte,
                      path, ": expected a uint8 tensor \"", name, "\" of rank ", rank);
    return found->second;
  };
  const auto images = take("images", 3), labels = take("labels", 1);
  TORCH_CHECK_VALUE(
      images.size(0) == labels.size(0) && images.size(0) >= 100 && images.size(1) == images.size(2), path,
      ": expected at least 100 square images and as many labels, got ", images.sizes(), " and ",
      labels.sizes());
  TORCH_CHECK_VALUE(labels.max().item<int64_t>() < 10, path, ": expected labels 0 to 9, got ",
                    labels.max().item<int64_t>());
  return {images.unsqueeze(1).to(at::kFloat) / 16.0, labels.to(at::kLong)};
}

Digits select(const Digits& digits, const at::Tensor& rows, at::Device device) {
  return {digits.images.index_select(0, rows).to(device), digits.labels.index_select(0, rows).to(device)};
}

// Shifts each image by -1, 0 or 1 pixels in both directions, as augmentation.
at::Tensor shifted(const at::Tensor& images, at::Generator generator) {
  const auto padded = at::constant_pad_nd(images, {1, 1, 1, 1});
  const auto side = images.size(2);
  const auto moves = at::randint(3, {images.size(0), 2}, generator, at::TensorOptions(at::kLong));
  const auto steps = at::arange(side);
  const auto rows = (moves.select(1, 0).unsqueeze(1) + steps).to(images.device());
  const auto columns = (moves.select(1, 1).unsqueeze(1) + steps).to(images.device());
  const auto image = at::arange(images.size(0), images.device()).view({-1, 1, 1});
  return padded.squeeze(1).index({image, rows.unsqueeze(2), columns.unsqueeze(1)}).unsqueeze(1);
}

double accuracy(ViT& model, const Digits& digits) {
  const at::NoGradGuard no_grad;
  model->eval();
  return model->forward(digits.images).argmax(1).eq(digits.labels).to(at::kDouble).mean().item<double>();
}

void run(const Settings& s) {
  if (s.threads > 0) at::set_num_threads(s.threads);
  const auto device = apps::choose_device(s.device);
  const auto digits = read_digits(s.data);

  auto generator = at::detail::createCPUGenerator(s.seed);
  const auto order = at::randperm(digits.labels.size(0), generator, at::TensorOptions(at::kLong));
  const auto tests = static_cast<int64_t>(s.test_share * static_cast<double>(order.size(0)));
  const auto test = select(digits, order.narrow(0, 0, tests), device);
  const auto training = select(digits, order.narrow(0, tests, order.size(0) - tests), device);
  const auto count = training.labels.size(0);
  TORCH_CHECK_VALUE(s.batch <= count, "expected --batch of at most ", count, " images, got ", s.batch);

  at::manual_seed(s.seed);
  ViT model(ViTOptions(digits.images.size(2), 2, 1, 10)
                .emb_dim(s.emb_dim)
                .num_heads(s.num_heads)
                .num_layers(s.num_layers)
                .dropout(s.dropout));
  model->to(device);
  AdamW optimizer(*model, {.learning_rate = s.learning_rate, .beta2 = 0.999, .weight_decay = 0.05});
  const auto steps = count / s.batch;
  const CosineSchedule schedule{.peak = s.learning_rate, .warmup = 2 * steps, .total = s.epochs * steps};
  fmt::print("{} images to learn, {} to test, {} patches an image, {}\n", count, tests, model->num_patches(),
             device.str());

  const auto start = std::chrono::steady_clock::now();
  for (int64_t epoch = 0; epoch < s.epochs; ++epoch) {
    model->train();
    const auto shuffled = at::randperm(count, generator, at::TensorOptions(at::kLong)).to(device);
    double loss_sum = 0;
    for (int64_t step = 0; step < steps; ++step) {
      const auto rows = shuffled.narrow(0, step * s.batch, s.batch);
      const auto images = shifted(training.images.index_select(0, rows), generator);
      const auto loss = at::cross_entropy_loss(model->forward(images), training.labels.index_select(0, rows),
                                               {}, at::Reduction::Mean, -100, /*label_smoothing=*/0.05);
      optimizer.zero_grad();
      loss.backward();
      optimizer.clip(1.0);
      optimizer.options.learning_rate = schedule.at(epoch * steps + step);
      optimizer.step();
      loss_sum += loss.item<double>();
    }
    if ((epoch + 1) % 10 == 0 || epoch + 1 == s.epochs) {
      fmt::print("epoch {:3} loss {:.4f} learned {:.2f} %\n", epoch + 1,
                 loss_sum / static_cast<double>(steps), 100 * accuracy(model, training));
      apps::flush_output();
    }
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  if (!s.save.empty()) save_model_folder(s.save, *model);
  fmt::print("test accuracy {:.2f} % after {:.0f} s\n", 100 * accuracy(model, test), seconds.count());
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("A vision transformer learns to read handwritten digits.", "attentive-vit-digits");
  Settings settings;
  declare(app, settings);
  return apps::run_main(app, argc, argv, [&] {
    run(settings);
    return 0;
  });
}
