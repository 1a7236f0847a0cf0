#include <attentive/train.h>

int main() {
  const attentive::CosineSchedule schedule;
  return schedule.at(0) >= 0 ? 0 : 1;
}
