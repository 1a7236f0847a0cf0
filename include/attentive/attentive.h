#pragma once

/// Includes every public header of the components `attention`, `files`, `models` and `text`, which make up
/// `attentive::attentive`. A program that is rebuilt often compiles faster if it includes only what it uses.

#include <attentive/attention.h>
#include <attentive/files.h>
#include <attentive/models.h>
#include <attentive/text.h>
