#pragma once

/// Version of this package, as in `project(VERSION)`.
#define ATTENTIVE_VERSION_MAJOR 0
#define ATTENTIVE_VERSION_MINOR 1
#define ATTENTIVE_VERSION_PATCH 0
#define ATTENTIVE_VERSION "0.1.0"
