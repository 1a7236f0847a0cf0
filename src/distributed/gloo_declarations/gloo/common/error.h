// See gloo/algorithm.h: a header that LibTorch's includes and of which nothing is needed.
#pragma once
