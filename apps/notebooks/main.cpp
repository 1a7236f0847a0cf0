#include "run_document.h"

int main(int argc, char** argv) {
  return notebooks::run_document(argc, argv, ATTENTIVE_DOCUMENT);
}
