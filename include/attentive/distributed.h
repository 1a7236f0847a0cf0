#pragma once

/// Everything of `attentive::distributed` in one include. Programs that build often include what they use.

#include <attentive/distributed/context_attention.h>
#include <attentive/distributed/data_parallel.h>
#include <attentive/distributed/group.h>
#include <attentive/distributed/peer_error.h>
