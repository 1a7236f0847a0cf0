#pragma once

#include <cstdint>
#include <string>
#include <string_view>

struct Settings;

/// A short prompt: the first word of a text, at most `context` bytes of it (0: no limit).
std::string first_prompt(std::string_view text, int64_t context);

// Commands for pasting into the shell from which this program was called as `program`.

/// The command for attentive-generate in this program's folder, with a prompt of at most `context` bytes from
/// the text; empty if that program does not exist.
std::string generate_command(const std::string& program, const std::string& run, std::string_view text,
                             int64_t context);
/// The command that resumes a run, with the settings that a checkpoint does not store.
std::string resume_command(const std::string& program, const Settings& settings);
