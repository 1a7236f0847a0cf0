#pragma once

#include <chrono>
#include <exception>
#include <memory>

#include <c10/core/Device.h>

#include <attentive/train/training_group.h>

/// The processes of a run, and the device of this one.
struct Joined {
  std::shared_ptr<attentive::TrainingGroup> group;  ///< null if this build has no component `distributed`
  c10::Device device;  ///< if there are several CUDA devices, the one with index LOCAL_RANK
};

/// Joins the processes that torchrun, or another launcher with its environment variables, started together,
/// on this kind of device. A call waits for the other processes at most `timeout`. Throws c10::ValueError if
/// there are several processes and this build has no component `distributed`, and the errors of
/// attentive::Group::join.
Joined join_group(c10::DeviceType kind, std::chrono::seconds timeout);

/// Whether all processes of a run are on this machine, as torchrun's LOCAL_WORLD_SIZE says.
bool on_one_machine(const attentive::TrainingGroup* group);

/// Whether torchrun has restarted this program in the same job after a failure.
bool started_again();

/// Tells the other processes and torchrun why this one ends. Does nothing without the component
/// `distributed`.
void report_to_group(const std::exception& error) noexcept;
