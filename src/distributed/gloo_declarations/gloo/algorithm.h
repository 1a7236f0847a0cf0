// LibTorch's wheel holds Gloo, but not its headers. c10d's header of its Gloo backend includes five of them; of what they
// declare, this library never calls anything, and LibTorch's header needs the names below only. Used by gloo_backend.cpp alone.
#pragma once
