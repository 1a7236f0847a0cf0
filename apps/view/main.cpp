// attentive-view: writes the attention of a model on a text or an image, or of a parity case, as one HTML
// page.

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <attentive/models/model_folder.h>
#include <attentive/viz/write_page.h>

#include "common/flags.h"
#include "common/run_main.h"
#include "pictures.h"
#include "progress.h"
#include "selection.h"
#include "source.h"

namespace {

using namespace attentive;

struct Settings {
  std::string model, image, parity_case, html, svg, layers = "*", title;
  std::optional<std::string> heads;
  TextInput text;
  std::vector<std::string> neurons;
  int64_t batch = 0;
  double megabytes = 15;
};

void declare(CLI::App& app, Settings& s) {
  auto* model =
      app.add_option("--model", s.model,
                     "A folder of attentive-train, one checkpoint in it, or a folder of a Python model: " +
                         known_families());
  auto* text = app.add_option("--text", s.text.text, "The text that the model reads")->needs(model);
  auto* ids = app.add_option("--ids", s.text.ids, "The text as tokens, as numbers: 1,15043,590")
                  ->delimiter(',')
                  ->check(apps::whole_number(0, std::numeric_limits<int32_t>::max()))
                  ->needs(model);
  auto* image =
      app.add_option(
             "--image", s.image,
             "The image, as the model takes it: a tensor (C, H, W) or (1, C, H, W) in a file of torch.save "
             "or safetensors; PNG is not read")
          ->needs(model);
  auto* of_case = app.add_option("--case", s.parity_case,
                                 "A parity case in place of a model: FILE, or FILE#case of a bundle")
                      ->excludes(model);
  text->excludes(ids)->excludes(image);
  ids->excludes(image);
  app.add_option("--out", s.html, "The page to write: page.html");
  app.add_option("--svg", s.svg, "Write one head, the first that is chosen, as a vector picture");
  app.add_option("--layers", s.layers, "Which layers, a pattern: \"trf_blocks.[0-3].*\"")
      ->capture_default_str();
  app.add_option("--heads", s.heads, "Which heads: 0,3-5 [all]");
  app.add_option("--tokens", s.text.most_tokens, "Only the first tokens of the text; 0: all")
      ->check(apps::whole_number(0, apps::kMostTokens))
      ->capture_default_str();
  app.add_option("--neurons", s.neurons, "Keep q and k of a head, to see their products: trf_blocks.0.att.3")
      ->delimiter(',');
  app.add_option("--batch", s.batch, "Which item of the case's batch")
      ->check(apps::whole_number(0, std::numeric_limits<int32_t>::max()))
      ->needs(of_case)
      ->capture_default_str();
  app.add_option("--title", s.title, "The page's heading [the model's name and the text's first words]");
  app.add_option("--megabytes", s.megabytes,
                 "The page is not larger; its steps of the weights are, if need be")
      ->check(apps::number(0, 1e6, apps::Ends::WithoutLeast))
      ->capture_default_str();
}

Source source_of(const Settings& s) {
  if (!s.parity_case.empty()) return case_source(s.parity_case, s.layers);
  TORCH_CHECK_VALUE(!s.model.empty(), "expected --model or --case");
  if (!s.image.empty()) return image_source(s.model, s.image, s.layers);
  TORCH_CHECK_VALUE(!s.text.text.empty() || !s.text.ids.empty(),
                    "expected --text, --ids or --image beside --model");
  return text_source(s.model, s.text, s.layers);
}

std::string counted(size_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

void write_page(const Settings& s, const Source& source, const std::vector<AttentionView>& views) {
  size_t heads = 0;
  for (const auto& view : views) heads += view.heads.size();
  const auto& weights = views.front().weights;
  const auto title = s.title.empty() ? source.title : s.title;
  try {
    const auto page = [&] {
      const Progress progress;
      return write_html(s.html, views,
                        {.title = title,
                         .max_bytes = static_cast<int64_t>(s.megabytes * 1e6),
                         .on_head = [&](int levels, int64_t head, int64_t count) {
                           progress.say(fmt::format("head {} of {}, in steps of 1/{}", head, count, levels));
                         }});
    }();
    fmt::print("{}: {}, {}, {} x {} tokens, {:.1f} MB, in steps of 1/{}\n", s.html,
               counted(views.size(), "layer"), counted(heads, "head"), weights.size(1), weights.size(2),
               static_cast<double>(page.bytes) / 1e6, page.levels);
  } catch (const PageTooLarge& error) {
    TORCH_CHECK_VALUE(false, error.what_without_backtrace(),
                      "; choose by --layers, --heads and --tokens, or allow more --megabytes");
  }
}

void run(const Settings& s) {
  TORCH_CHECK_VALUE(!s.html.empty() || !s.svg.empty(), "expected --out page.html or --svg head.svg");
  Selection selection{.batch = s.batch};
  if (s.heads) selection.heads = parse_numbers("--heads", *s.heads);
  for (const auto& one : s.neurons) selection.neurons.push_back(parse_layer_head("--neurons", one));
  const auto source = source_of(s);
  const auto views = views_of(source, selection);
  if (!s.svg.empty()) {
    write_svg(s.svg, views.front(), {.title = s.title});
    fmt::print("{}: {}, head {}\n", s.svg, views.front().path, views.front().heads.front());
  }
  if (!s.html.empty()) write_page(s, source, views);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Shows the attention of a model, head by head, on one HTML page.", "attentive-view");
  Settings settings;
  declare(app, settings);
  return apps::run_main(app, argc, argv, [&] {
    run(settings);
    return 0;
  });
}
