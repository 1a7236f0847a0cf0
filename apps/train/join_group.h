#pragma once

#include <chrono>
#include <exception>
#include <memory>

#include <c10/core/Device.h>

#include <attentive/train/training_group.h>

/// The processes of a run, and where this one works.
struct Joined {
  std::shared_ptr<attentive::TrainingGroup> group;  ///< null where this build has no component `distributed`
  c10::Device device;                               ///< of several CUDA devices, the one of LOCAL_RANK
};

/// Joins the processes that torchrun, or another launcher with its environment variables, started together, on
/// this kind of device. A call waits for the others up to `timeout`. Throws c10::ValueError if there are
/// several and this build has no component `distributed`, and what attentive::Group::join throws.
Joined join_group(c10::DeviceType kind, std::chrono::seconds timeout);

/// Whether torchrun has started this program before, in the same job, and does so again after a failure.
bool started_again();

/// Tells the other processes and torchrun why this one ends. Does nothing without the component.
void report_to_group(const std::exception& error) noexcept;
