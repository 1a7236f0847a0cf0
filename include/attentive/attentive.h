#pragma once

/// Everything of `attentive::attentive` in one include. Programs that build often include what they use.

#include <attentive/attention.h>
#include <attentive/files.h>
#include <attentive/models.h>
#include <attentive/text.h>
