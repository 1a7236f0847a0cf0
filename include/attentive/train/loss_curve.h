#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <attentive/train/training_log.h>

namespace attentive {

/// Draws the losses of a run by step as an SVG picture: the training loss as a line, the validation loss as a
/// line with dots. The picture is self-contained and readable on light and dark backgrounds.
/// Rows whose loss is not finite are left out.
/// Memory: the text, with at most about 1,000 points per line.
///
///   attentive::save_loss_curve("run/loss.svg", log.rows(), "tinyshakespeare");
std::string loss_curve_svg(const std::vector<LogRow>& rows, const std::string& title = "");

/// Writes that picture, all or nothing. Throws c10::ValueError if the file cannot be written.
void save_loss_curve(const std::filesystem::path& path, const std::vector<LogRow>& rows,
                     const std::string& title = "");

}  // namespace attentive
