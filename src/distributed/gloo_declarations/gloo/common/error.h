// See gloo/algorithm.h. A header that LibTorch's header includes, and from which it needs nothing.
#pragma once
