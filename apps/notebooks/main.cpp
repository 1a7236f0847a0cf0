#include "app.h"

int main(int argc, char** argv) {
  return notebooks::run_app(argc, argv, ATTENTIVE_DOCUMENT);
}
