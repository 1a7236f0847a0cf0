#pragma once

/// Version of this package. CMakeLists.txt reads it from here.
#define ATTENTIVE_VERSION_MAJOR 0
#define ATTENTIVE_VERSION_MINOR 2
#define ATTENTIVE_VERSION_PATCH 0
#define ATTENTIVE_VERSION "0.2.0"
