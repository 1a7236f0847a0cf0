#include "image.h"

#include <algorithm>
#include <array>
#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include <attentive/files/safetensors.h>
#include <attentive/files/torch_file.h>

namespace {

using namespace attentive;

at::Tensor from_safetensors(const std::filesystem::path& path) {
  const auto tensors = load_safetensors(path).tensors;
  const auto named = tensors.find("image");
  TORCH_CHECK_VALUE(named != tensors.end() || tensors.size() == 1, path.string(),
                    ": expected one tensor, or one that is named \"image\", got ", tensors.size());
  return named != tensors.end() ? named->second : tensors.begin()->second;
}

void refuse_pictures(const std::filesystem::path& path) {
  constexpr std::array kinds{".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff"};
  const auto kind = path.extension().string();
  TORCH_CHECK_VALUE(std::find(kinds.begin(), kinds.end(), kind) == kinds.end(), path.string(),
                    ": expected a tensor, as the model takes it, in a file of torch.save or safetensors; ",
                    kind,
                    " is not read (in Python: torch.save(processor(image, "
                    "return_tensors=\"pt\").pixel_values, \"image.pt\"))");
}

}  // namespace

at::Tensor read_image(const std::filesystem::path& path) {
  refuse_pictures(path);
  auto image =
      path.extension() == ".safetensors" ? from_safetensors(path) : load_torch(path).as<at::Tensor>();
  if (image.dim() == 4 && image.size(0) == 1) image = image.squeeze(0);
  TORCH_CHECK_VALUE(image.dim() == 3 && image.numel() > 0 && image.is_floating_point(), path.string(),
                    ": expected an image of floating numbers of shape (C, H, W) or (1, C, H, W), got ",
                    c10::toString(image.scalar_type()), " ", image.sizes());
  return image.to(at::kFloat);
}

at::Tensor shown_pixels(const at::Tensor& image) {
  if (image.size(0) != 1 && image.size(0) != 3) return {};
  const auto low = image.min(), range = image.max() - low;
  if (!(range.item<float>() > 0)) return at::zeros_like(image);
  return ((image - low) / range).clamp(0, 1);
}
