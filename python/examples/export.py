import torch

import attentive


class Attend(torch.nn.Module):
    def forward(self, q, k, v):
        return attentive.attention(q, k, v, causal="bottom_right")


q, k, v = (torch.rand(1, 4, 64, 32) for _ in range(3))
y = Attend()(q, k, v)
print("compiled:", torch.compile(Attend(), fullgraph=True)(q, k, v).allclose(y))

tokens = torch.export.Dim("tokens", max=4096)
program = torch.export.export(Attend(), (q, k, v), dynamic_shapes=[{2: tokens}] * 3)
package = torch._inductor.aoti_compile_and_package(program, package_path="attend.pt2")
print("packaged:", torch._inductor.aoti_load_package(package)(q, k, v).allclose(y))
