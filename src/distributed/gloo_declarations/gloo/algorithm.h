// LibTorch's wheel contains Gloo, but not its headers. The header of c10d's Gloo backend includes five of
// them. This library calls nothing that they declare, and LibTorch's header needs only the names below. Only
// gloo_backend.cpp uses these files.
#pragma once
