// Mistakes that the compiler detects. mistakes_test.py expects an error for every line marked as a mistake
// that is traced to that line and names the fix. Every other line is correct.

#include <attentive/functional/attention.h>
#include <attentive/models/gpt.h>
#include <attentive/models/vit.h>

using namespace attentive;

void flags(const at::Tensor& x) {
  AttentionOptions stored{.causal = true};  // mistake
  attention(x, x, x, {.causal = 1});        // mistake
  AttentionOptions aligned{.align = true};  // mistake
  AttentionOptions numbered{.align = 1};    // mistake
}

void sizes() {
  GPT model(50257, 1024, 768, 12, 12);              // mistake
  GPT with_dropout(50257, 1024, 768, 12, 12, 0.1);  // mistake
  ViT classifier(224, 16, 3, 1000);                 // mistake
  ViTBlock block(64, 4);                            // mistake
}

// The correct forms.
void right(const at::Tensor& x) {
  AttentionOptions stored{.causal = Causal::BottomRight};
  attention(x, x, x, {.causal = Causal::TopLeft});
  attention(x, x, x, {.causal = Causal::TopLeft}, {});
  const Causal causal = stored.causal;  // the option converts back
  switch (stored.causal) {
    case Causal::None:
    case Causal::BottomRight:
    case Causal::TopLeft:
      break;
  }
  static_assert(std::is_aggregate_v<AttentionOptions>);
  (void)(causal == stored.causal && stored.causal != Causal::None);
  GPT model(GPTOptions(50257, 1024, 768, 12, 12).dropout(0.1));
  ViTBlock block(ViTOptions(224, 16, 3, 1000).emb_dim(64).num_heads(4));
}
