#pragma once

#include <cstdint>
#include <string>

struct Settings;

/// The first word of a text, at most `context` bytes of it (0: no limit), and never many: a prompt.
std::string first_prompt(const std::string& text, int64_t context);

// Commands that can be pasted into the shell from which this program was called as `program`.

/// attentive-generate from this program's own folder, with a prompt of at most `context` bytes from the text;
/// empty if that program is not there.
std::string generate_command(const std::string& program, const std::string& run, const std::string& text,
                             int64_t context);
/// This program again, with what a checkpoint does not say.
std::string resume_command(const std::string& program, const Settings& settings);
