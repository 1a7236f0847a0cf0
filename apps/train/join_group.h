#pragma once

#include <chrono>
#include <exception>
#include <memory>

#include <c10/core/Device.h>

#include <attentive/train/training_group.h>

/// The processes that torchrun, or another launcher with its environment variables, started together; null
/// where this build has no component `distributed`. A call waits for the others up to `timeout`. Throws
/// c10::ValueError if there are several and it has none, and what attentive::Group::join throws.
std::shared_ptr<attentive::TrainingGroup> join_group(c10::Device device, std::chrono::seconds timeout);

/// Whether torchrun has started this program before, in the same job, and does so again after a failure.
bool started_again();

/// Tells the other processes and torchrun why this one ends. Does nothing without the component.
void report_to_group(const std::exception& error) noexcept;
