"""How the tests of attentive-port call each class, and what has to be recognised in it."""

import dataclasses
import importlib.util
import pathlib

HERE = pathlib.Path(__file__).parent


@dataclasses.dataclass(frozen=True)
class Case:
    """`args` and each of `inputs` are texts of the command line.

    `attention` is the number of places in the source, in all classes that the translation writes, where a call of this
    package stands for the user's operations; `composed` says why others stay as written. `twin` is the constructor call of the
    hand-written C++ class, where there is one, and `twin_call` its forward, in the names of Python's arguments.
    """

    cls: str
    args: str
    inputs: tuple
    attention: int = 0
    composed: str = ""
    file: str = "classes.py"
    hidden_rows: bool = False  # numbers may differ where a row hides every key
    name: str = ""
    twin: str = ""
    twin_call: str = ""

    @property
    def id(self):
        return self.name or self.cls

    @property
    def path(self):
        return HERE / self.file


def case(cls, args, *inputs, **rest):
    return Case(cls, args, inputs, **rest)


def idiom(cls, args, *inputs, **rest):
    return Case(cls, args, inputs, file="idioms.py", **rest)


X = "randn(B, T, 32)"
HEADS = "randn(B, 4, T, 8), randn(B, 4, T, 8), randn(B, 4, T, 8)"
BUCKETS = "buckets=8, far=16, heads=4, head_width=8, width=32"
ONE_TENSOR = "*[randn(B, T, 32)] * 3"
PADDING = "arange(T).expand(B, T) >= T - 2"
KEEP = "ones(B, T, T).tril()"

CLASSES = [
    # Encoders and decoders.
    case("SelfAttention", "32, 4", X, f"{X}, memory=randn(B, 5, 32)", f"{X}, mask={KEEP}[:, None]", attention=1),
    case("EncoderLayer", "32, 4, 64", X, attention=1, name="EncoderLayer_post"),
    case("EncoderLayer", "32, heads=4, hidden=64, norm_first=True", f"{X}, mask=ones(B, 1, 1, T)", attention=1,
         name="EncoderLayer_pre"),
    case("DecoderLayer", "32, 4, 64", f"{X}, randn(B, 7, 32)", f"{X}, randn(B, 7, 32), ones(B, 1, 1, 7)", attention=1),
    case("Translator", "words=20", "randint(1, 20, (B, T)), randint(1, 20, (B, T + 1))", attention=1),
    # Language model.
    case("SmallGPT", "Settings(context=16, dropout=0.1)", "randint(0, 50, (B, T)), targets=randint(0, 50, (B, T))",
         "randint(0, 50, (B, T))", attention=1),
    # Vision.
    case("VisionTransformer", "classes=10", "randn(B, 3, 8, 8)", attention=1),
    case("WindowAttention", "32, (2, 3), 4, drop=0.1", "randn(2 * B, 6, 32)", "randn(2 * B, 6, 32), mask=randn(2, 6, 6)",
         attention=1),
    case("RolledWindows", "32, (8, 8), 4", "randn(B, 64, 32)", attention=1),
    case("SqueezeExcite", "32", "randn(B, 32, T, T)"),
    case("ConvGate", "16", "randn(B, 16, T, T)"),
    case("ImageAttention", "32", "randn(B, 32, T, T)", attention=1),
    case("TimedBlock", "8, 16", "randn(B, 8, T, T), randint(0, 100, (B,))"),
    case("ConditionedBlock", "32, 4", f"{X}, randn(B, 32)", attention=1),
    # Positions.
    case("BucketedAttention", f"types.SimpleNamespace(causal=False, {BUCKETS}, dropout=0.1)", X, f"{X}, memory=randn(B, 5, 32)",
         attention=1, name="BucketedAttention_both_ways"),
    case("BucketedAttention", f"types.SimpleNamespace(causal=True, {BUCKETS}, dropout=0.0)", X, attention=1,
         name="BucketedAttention_causal"),
    case("RotaryAttention", "32, 4", X, attention=1),
    case("ComplexRotaryBlock", "32, 4, groups=2", X, attention=1, composed=""),
    case("SlopedAttention", "48, 6", "randn(B, T, 48)", attention=1),
    # Heads, windows, masks.
    case("OneKeyHead", "32", X, attention=1),
    case("GroupedAttention", "width=32, heads=4, groups=2", X, attention=1),
    case("SlidingWindow", "32, 4, window=3", X, attention=1),
    case("CrossAttention", "32, 24", "randn(B, T, 32), randn(B, 7, 24)",
         "randn(B, T, 32), randn(B, 7, 24), padding=arange(7).expand(B, 7) >= 5, need_weights=True", attention=1),
    case("ItemMask", "32, 2", f"{ONE_TENSOR}, mask={KEEP}, bias=randn(B, 2, T, T)", attention=1),
    case("WeightsAfterDropout", "5.0, 0.2", HEADS, f"{HEADS}, mask=ones(B, 1, T, T).tril()", attention=1),
    case("WeightsAfterDropout", "5.0, 0.0", f"{HEADS}, mask=full((T, T), float('-inf')).triu(1)", attention=0, composed="a row hides every key", hidden_rows=True,
         name="WeightsAfterDropout_inside_out"),  # a mask to be added, which `mask == 0` reads the wrong way round
    case("FusedFunction", "", f"{HEADS}, randn(T, T)", f"{HEADS}, ones(T, T, dtype=torch.bool).tril()", attention=1, composed="a mask that is bool in one call and floating in another"),
    case("LibraryAttention", "32, 4", f"{X}, {PADDING}", attention=1),
    case("LibraryEncoder", "20, 32, 4, 64, 2", "randint(0, 20, (B, T))", attention=2),
    # Other kinds.
    case("LinearAttention", "32", X, name="LinearAttention_all"),
    case("LinearAttention", "32, causal=True", X, name="LinearAttention_causal"),
    case("RandomFeatures", "32, features=20", X),
    case("LSTMAttention", "20, 16, 12, 5", "randint(0, 20, (B, T)), arange(B) % 3 + 2"),
    case("DecoderStep", "16, 20", "randint(0, 20, (B,)), randn(B, T, 16)",
         "randint(0, 20, (B,)), randn(B, T, 16), state=randn(B, 16)"),
    case("GraphAttention", "16, 8", "randn(T, 16), (ones(T, T).tril() + ones(T, T).triu(3))"),
    case("LearnedPooling", "32", X),
    case("HeadsAsAxis", "32, 4, 8", X, attention=0, composed="the fill value is no large negative number"),
    case("HeadsInBatch", "24, 32, 32, 4, norm=True", "randn(B, T, 24), randn(B, 5, 32)", attention=1),
    case("LearnedPoints", "24, 32, 4, 3", "randn(B, T, 24)", attention=1),
    case("CachedAttention", "32, 4, limit=20", f"{X}, keep=True", X, attention=1),
    # Modules made of modules.
    case("GatedLayers", "32, act=nn.SiLU", X),
    case("WrappedTransformer", "32, 2, 4, 64, dropout=0.1", X, f"{X}, mask={KEEP}[:, None]", attention=1),
    case("BuiltByFunctions", "32", X),
    case("CopiedStack", "EncoderLayer(32, 4, 64), 3, 32", X, f"{X}, mask={KEEP}[:, None]", attention=1),
    case("SharedLayers", "32, 4", X, attention=1),
    case("Experts", "32", X),
    case("ConvModule", "32", X),
    case("TrendAndRest", "6", "randn(B, 6, 32)"),
    case("FourierMixer", "32", X),
    case("Recurrence", "16", "randn(B, T, 16)"),
    # Losses and choices.
    case("ContrastiveLoss", "32, 16", "randn(B + 2, 32), randn(B + 2, 32)"),
    case("Codebook", "12, 8", "randn(B, T, 8)"),
    case("PolicyAndValue", "8, 4", "randn(B * T, 8), randint(0, 4, (B * T,)), randn(B * T), randn(B * T) - 1"),
    case("KeepsBest", "32", X),
    # How things are written.
    case("ConfiguredByDict", "dict(width=32, layers=2, bias=True, temperature=2.0)", X),
    case("ConfiguredByNamespace", "SimpleNamespace(width=32, heads=4, eps=1e-6, mode='cls', sizes=(4, 8), act='gelu')", X,
         attention=1),
    case("StarsEverywhere", "width=32", X, f"{X}, scale=0.25", attention=1),
    case("ReturnsMany", "16", "randn(B, T, 16)", "randn(B, T, 16), state=randn(1, B, 16), scale=rand(1)"),
    case("MethodsOfAllKinds", "32", X, attention=1),
    case("FactoryArguments", "32, 4", X, attention=1),
    case("OptionalParts", "16, out=24", "randn(B, T, 16)", "randn(B, T, 16), gate=randn(B, T, 24)",
         "randn(B, T, 16), randn(B, T, 24), True"),
    case("OptionalParts", "16, hidden=20, norm='rms'", "randn(B, T, 16)", name="OptionalParts_rms"),
    case("SkipLevels", "", "randn(B, T, 8)"),
    case("NamedLayers", "16, act='Tanh'", "randn(B, T, 16)"),
    case("MovingCenter", "16", "randn(B, T, 16)"),
    # Traps.
    case("NamesOfCpp", "16", "randn(B, T, 16)", "randn(B, T, 16), long=randn(B, T, 16)"),
    case("PrivateNames", "16", "randn(B, T, 16)"),
    case("TensorConstants", "16", "randn(B, T, 16)"),
    case("DrawOrder", "16", "randn(B, T, 16)"),
    case("NumbersOfPython", "16", "randn(B, T, 16)"),
    case("InPlaceAndAliases", "8", "randn(B, T, 8)", "randn(B, T, 8), flip=True"),
    case("BuiltInForward", "32, 4", f"{X}, ones(T, T, dtype=torch.bool).triu(1)", attention=0, composed="the weights are reshaped before the product"),
    case("StaticDropout", "4, 32", f"{ONE_TENSOR}, ones(B, 1, 1, T)", attention=1),
    case("DropoutAlways", "", HEADS, attention=1),
    case("PackedByHead", "32, 4", X, attention=1),
    case("AttentionOverHeads", "32, 4", f"{X}, {X}, {X}", attention=1),
    case("TwoDimensions", "32, 8", "randn(T, 32)", attention=1),
    case("HiddenRows", "", f"{HEADS}, ones(B, T, T).tril(-1)", attention=0, composed="a row hides every key", hidden_rows=True),
    case("RebuiltMask", "32, 16", f"{X}, {PADDING}", composed="the scores are read again"),
    case("RebuiltMask", "32, 6", "randn(6, 6, 32), arange(6).expand(6, 6) >= 4", composed="the scores are read again",
         name="RebuiltMask_square"),
    case("SharedInput", "32", ONE_TENSOR, f"{X}, {X}, {X}", attention=1),
    case("PrintsAndAsserts", "16, dict(verbose=1, out=12)", "randn(B, T, 16)"),
    case("DoubleModule", "16", "randn(B, T, 16)"),
    # Ways to write Python.
    idiom("NumpyTable", "32", X, attention=1),
    idiom("ParameterMix", "32", X),
    idiom("Results", "32", X),
    idiom("ObjectMask", "Shape()", "randn(B, T, 32)", attention=1),
    idiom("TwoKinds", "32", X),
    idiom("KeywordReader", "32, scale=2.0, bias=False", f"{X}, mask=ones(B, T, 1)"),
    idiom("KeywordReader", "32, hidden=16, scale=0.5", X, name="KeywordReader_hidden"),
    idiom("TwoGains", "32", X),
    idiom("MethodChoice", "32", X),
    idiom("MethodChoice", "32, pad='same'", X, name="MethodChoice_same"),
    idiom("Sizes", "32", X),
    idiom("Block", "32", X),
    idiom("Gathered", "32, depth=2", X),
    idiom("GatheredTwice", "32", X),
    idiom("Levels", "32", X),
    idiom("OldStyle", "32", X),
    idiom("HalfLinear", "32", X),
    idiom("ArrayInput", "20, 16", "randint(0, 20, (B, T)).numpy()"),
    idiom("ConvOf", "32", X),
    idiom("Pairs", "32", X),
    idiom("Weighed", "(32, 16)", X),
    idiom("Weighed", "(32, 24, 16)", X, name="Weighed_deep"),
    idiom("TupleTail", "32", X),
    idiom("KeptKeywords", "width=32, scale=0.5", X),
    idiom("OldSpelling", "32, 4", f"x={X}, y=x"),
    idiom("ListSlices", "[16, 32, 64]", "randn(B, T, 16), randn(B)"),
    idiom("EmptyLayers", "32", X, f"{X}, rand(B, T)"),
    idiom("OffsetBias", "dim=8, resolution=3, kernels={3: 4, 5: 4}", "x=randn(B, 9, 8)"),
    idiom("Switched", "dim=6", "x=randn(B, 4, 6)"),
    idiom("SeveralResults", "dim=6", "x=randn(B, T, 6)"),
    idiom("Chosen", "dim=5", "x=randn(B, 6, 5)", "x=randn(B, 6, 5), extra=randn(B, 3, 5)"),
    idiom("AskedInTurn", "dim=4", "x=randn(B, 6, 4)", "x=randn(B, 6, 4), y=randn(B, 6, 4)"),
    idiom("ReadScores", "0.1", f"{HEADS}, {KEEP}", attention=5),
    idiom("LettersAndLists", "dim=4, word='gt', table=np.arange(4.0)", "randn(B, T, 4)"),
    idiom("BalancedModel", "dim=4", "randn(B, T, 4)"),
    idiom("Counters", "dim=4", "x=randn(B, 6, 4)"),
    idiom("Replaced", "dim=8, side=3", "x=randn(B, 9, 8), y=randn(B, 9, 8)"),
    idiom("Grid", "32, torch.arange(320.0).view(10, 32).sin()", "randn(B, 2 * T, 32), T, 2"),
    idiom("PackedLSTM", "32", f"{X}, arange(T, T - B, -1)"),
    idiom("Memories", "32", f"{X}, ones(B, T, 32).tril(3)"),
    idiom("HeldBefore", "32, word='wide'", X, f"{X}, ones(T)", f"{X}, zeros(T)"),
    idiom("Columns", "dict(kind_of=1, place=0, day=2), [('kind_of', 4), ('place', 3)], 'top4'",
          "randint(0, 3, (B, 3)), randint(1, 3, (B,))"),
    idiom("EveryPair", "32", "randn(B, 6, 32)"),
    idiom("LayersByType", "dim=8", "x=randn(B, T, 8)"),
    idiom("LayersByType", "dim=8, start='wide'", "x=randn(B, T, 8)", name="LayersByType_wide"),
    idiom("ComplexGain", "30, 8", "randint(2, 9, (B, T))"),
    idiom("OwnLists", "8", "randn(B, T, 8)"),
    idiom("ChosenExperts", "8", "randn(B, T, 8)"),
    idiom("SeededBuckets", "8", "randn(B, T, 8)"),
    idiom("OneNameTwoClasses", "8, 3", "randn(B, T, 8)"),
    idiom("BothSmooth", "8", "randn(B, T, 8), rand(B)"),
    idiom("TwoPools", "('a', 'b', 'c'), 8", "randn(B, T, 8)"),
    idiom("RoundedTable", "Rounded(words=60)", "randint(0, 60, (B, T))"),
    idiom("Traced", "8", "randn(B, T, 8)", "randn(B, T, 8), True"),
    idiom("GivenOptions", "8", "randn(B, T, 8)"),
    idiom("OldWays", "8, 12", "randn(B, T, 8), arange(B)"),
    idiom("RowsOfABlock", "8, 12", "randn(B, T, 8)"),
    idiom("Routed", "8, 4, 2", "randn(B, T, 8)"),
    idiom("Followed", "8", "randn(B, T, 8)"),
    idiom("HandedLayers", "8", "randn(B, 3, 8, 8)"),
    idiom("ConfiguredStages", "[StageSettings(8, 2), StageSettings(10, 1, stretch=1.5, wide=3)]", "randn(B, 3, 6, 6)"),
    idiom("EitherList", "8", "randn(B, T, 8)"),
    idiom("WordsInDicts", "8, {'second': 'low', 'third': 'high'}, {'user': 5, 'item': 7}", "randn(B, T, 8), {'user': randint(0, 5, (B, T)), 'item': randint(0, 7, (B, T))}"),
    idiom("PartOfTower", "Tower(8), {'middle': 'deep', 'low': 'early'}", "randn(B, T, 8)"),
    idiom("StartedByName", "8", "randn(B, T, 8)"),
    idiom("ConvolutionsByKeywords", "4", "randn(B, 4, 12, 12)"),
    idiom("WrappedTwice", "8", "randn(B, T, 8), randn(B, 5, 8)"),
    idiom("TiedBack", "5", "x=randn(B, T, 5)"),
    idiom("PartsByNameOrPlace", "8, 3", "randn(B, T, 8)"),
    idiom("WithPast", "8, 2", "randn(B, T, 8)", "randn(B, T, 8), [(randn(B, 3, 8), randn(B, 3, 8)), (randn(B, 2, 8), randn(B, 2, 8))]"),
    idiom("AxesOfAnyNumber", "[6, 2, 4]", "randn(B, T, 5, 6), randint(0, T, (B, 3)), arange(T) < T - 1"),
    idiom("LayersOrNone", "8, 3", "randn(B, T, 8)", "randn(B, T, 8), mask=rand(B, T, 1)"),
    idiom("CellOfItsBase", "8, 'gru'", "randn(B, T, 8)"),
    idiom("ShiftsOrNot", "8", "randn(B, 4, 5, 8)"),
    idiom("KeywordsThatChange", "8, 6", "randn(B, T, 8), randn(B, 5, 6)", "randn(B, T, 8), randn(B, 5, 6), rand(B, 5, 1)"),
    idiom("PaddedBefore", "3, 3", "randn(B, 3, 8, 8)"),
    idiom("OldAndNew", "8", "randn(B, T, 8)", attention=1),
    idiom("Normed", "5", "randn(B, 3, 8, 8), randint(0, 5, (B,))"),
    idiom("NamedInALoop", "8", "randn(B, T, 8)"),
    idiom("RolledByLists", "8, [2, 1], [nn.Linear] * 2, [nn.Tanh, nn.Softplus]", "randn(B, T, 8)"),
    idiom("FurtherKeywords", "4", "randn(B, 3, 8, 8)"),
    idiom("Planned", "planned([8, 'M', 'T', 16], 4, normed=True), [4, 'M']", "randn(B, 4, 8)"),
    idiom("Stages", "8", "randn(B, 2 * T, 8)"),
    idiom("FrozenTable", "8, 2, 8", "randn(B, T, 8), arange(B) + 1"),
    idiom("AsksForMore", "8", "randn(B, T, 8)", "randn(B, T, 8), more=True"),
    idiom("Batch", "20, 16", "SimpleNamespace(ids=randint(1, 20, (B, T)), mask=ones(B, T))"),
    idiom("WholeNumbers", "8, np.array([4, 5, 6])", "randint(0, 4, (B, 3))"),
    idiom("ByTheirNames", "8, 3", "randn(B, T, 8)"),
    idiom("WithUnitRows", "8", "randn(B, T, 8)"),
    idiom("ToldOnly", "8", "randn(B, T, 8)"),
    idiom("Policy", "8, 5", "randn(B, T, 8), randint(0, 5, (B, T))", "randn(B, T, 8), randint(0, 5, (B, T)), draw=True"),
    idiom("FromBranches", "8", "randn(B, 2 * T, 8)"),
    idiom("KeepsFunctions", "8", "randn(B, T, 8)"),
    idiom("HandsOn", "8", "randn(B, T, 8), randn(B, 5, 8)"),
    idiom("NamedParts", "8, 2", "randn(B, T, 8)"),
    idiom("BeforeOne", "8", "randn(B, T, 8), T"),
    idiom("DerivedNorms", "8", "randn(B, 8, T)"),
]

# Idioms that a translation may refuse by name.
FURTHER = [
    case("DerivedFromLibrary", "16", "randn(B, T, 16)"),
    case("ReturnsByName", "16, 5", "randn(B, T, 16), randint(0, 5, (B, T))"),
    case("ReturnsByName", "16, 5, as_dict=True", "randn(B, T, 16), randint(0, 5, (B, T))", name="ReturnsByName_dict"),
]

EINOPS = [
    case("PatternAttention", "32", X, f"{X}, mask=~({PADDING})", attention=1, file="einops_classes.py"),
    case("PatternVision", "image=8, patch=2, width=32", "randn(B, 3, 8, 8)", file="einops_classes.py"),
    case("Packed", "8", "randn(B, T, 8), arange(T).expand(B, T) < T - 1", attention=1, file="einops_classes.py"),
]

NOTEBOOK = "notebooks.ipynb"
NOTEBOOKS = [
    case("ScaledDotProductAttention", "dropout=0.1", "randn(B, T, 8), randn(B, T, 8), randn(B, T, 8)",
         "randn(B, T, 8), randn(B, T, 8), randn(B, T, 8), mask=ones(T, T).tril()", attention=1, file=NOTEBOOK, hidden_rows=True,
         twin="attentive::ScaledDotProductAttention(0.1)", twin_call="forward(Q, K, V, Mask::keep(mask != 0))"),
    case("MultiHeadSelfAttention", "d_model=16, num_heads=4, dropout=0.1", "randn(B, T, 16)",
         "randn(B, T, 16), mask=ones(B, 1, T, T).tril()", "randn(B, T, 16), mask=ones(B, 1, 1, T)", attention=1, file=NOTEBOOK,
         hidden_rows=True,
         twin="attentive::MultiHeadSelfAttention(16, 4, 0.1)", twin_call="forward(x, Mask::keep(mask != 0))"),
    case("SelfAttention_v1", "3, 2", "randn(T, 3)", attention=1, file=NOTEBOOK, twin="attentive::SelfAttentionV1(3, 2)",
         twin_call="forward(x)"),
    case("MatrixSelfAttention", "12, 4", "randn(B, T, 12)", attention=1, file=NOTEBOOK,
         twin="attentive::MatrixSelfAttention(12, 4)", twin_call="forward(x)"),
    case("SelfAttention_v2", "3, 2, qkv_bias=True", "randn(T, 3)", attention=1, file=NOTEBOOK,
         twin="attentive::SelfAttentionV2(3, 2, true)", twin_call="forward(x)"),
    case("CausalAttention", "3, 2, context_length=12, dropout=0.1", "randn(B, T, 3)", attention=1, file=NOTEBOOK,
         twin="attentive::CausalAttention(3, 2, 12, 0.1)", twin_call="forward(x)"),
    case("CausalAttention", "3, 2, context_length=1, dropout=0.0", "randn(B, T, 3)", file=NOTEBOOK,
         name="CausalAttention_one_token", composed="the mask has one token, is broadcast and hides nothing"),
    case("MultiHeadAttentionWrapper", "3, 2, 12, 0.1, num_heads=2", "randn(B, T, 3)", attention=1, file=NOTEBOOK,
         twin="attentive::MultiHeadAttentionWrapper(3, 2, 12, 0.1, 2)", twin_call="forward(x)"),
    case("MultiHeadAttention", "d_in=12, d_out=8, context_length=12, dropout=0.1, num_heads=2", "randn(B, T, 12)", attention=1,
         file=NOTEBOOK, twin="attentive::MultiHeadAttention(12, 8, 12, 0.1, 2)", twin_call="forward(x)"),
    case("SharedHeadAttention", "16, heads=4", "randn(B, 5, 16), randn(B, 5, 16), randn(B, T, 16)",
         "randn(B, 5, 16), randn(B, 5, 16), randn(B, T, 16), mask=ones(B, 1, 1, 5)", attention=1, file=NOTEBOOK,
         twin="attentive::SharedHeadAttention(16, 4)", twin_call="forward(values, keys, query, Mask::keep(mask != 0))"),
    case("FusedSelfAttention", "16, num_heads=4", "randn(B, T, 16)", attention=1, file=NOTEBOOK,
         twin="attentive::FusedSelfAttention(16, 4)", twin_call="forward(x)"),
]


@dataclasses.dataclass(frozen=True)
class Refused:
    """`names`: every word that the one line of the message has to hold, beside the file and the line. Where `or_equal`, C++ that
    gives Python's numbers is right, too."""

    cls: str
    args: str
    inputs: str
    names: tuple
    has_line: bool = True
    or_equal: bool = False
    file: str = "refused.py"

    @property
    def path(self):
        return HERE / self.file

    @property
    def place(self):
        """The file and the line that is marked in the class."""
        lines = self.path.read_text().splitlines()
        begin = next(i for i, line in enumerate(lines) if line.startswith((f"class {self.cls}(", f"{self.cls} = ")))
        line = next(i for i in range(begin, len(lines)) if "# here" in lines[i]) + 1
        return f"{self.file}:{line}" if self.has_line else ""


SMALL = "randn(B, T, 8)"
REFUSED = [
    Refused("WhileOnValues", "", SMALL, ("while",), or_equal=True),
    Refused("BranchOnValues", "8", SMALL, ("if",), or_equal=True),
    Refused("LoopOverValues", "", f"{SMALL}, full((B,), T)", ("int(",), or_equal=True),
    Refused("NumpyOnTensors", "", SMALL, ("numpy",)),
    Refused("ForwardHook", "8", SMALL, ("register_forward_hook",)),
    Refused("GradientHook", "", SMALL, ("register_hook",)),
    Refused("CustomGradient", "", SMALL, ("Clipped",)),
    Refused("DropsAgain", "", SMALL, ("run_again", "dropout")),
    Refused("MadeByType", "", SMALL, ("Made", "source"), has_line=False),
    Refused("Made", "", SMALL, ("Made", "source"), has_line=False),
    Refused("SourceOfText", "", SMALL, ("Inner", "source"), has_line=False),
    Refused("KeywordsOfAnything", "'leaky_relu', negative_slope=0.2", SMALL, ("options",), or_equal=True),
    Refused("YieldsStates", "8", SMALL, ("yield",)),
    Refused("GlobalCounter", "", SMALL, ("CALLS",)),
    Refused("TryInstead", "8", SMALL, ("try",)),
    Refused("RandomOfPython", "8", SMALL, ("random.random",)),
    Refused("ClockInForward", "", SMALL, ("time.time",)),
    Refused("LazyLayer", "", SMALL, ("LazyLinear",)),
    Refused("Parametrized", "8", SMALL, ("orthogonal",)),
    Refused("SkippedGlobal", "", SMALL, ("LEVELS", "--set", "refused.py"), has_line=False),
    Refused("BeyondSixtyFourBits", "8", SMALL, ("64",)),
    Refused("TypeByValue", "", SMALL, ("str",)),
    Refused("WordsOfTensors", "", SMALL, ("f'",)),
    Refused("MatchesParts", "", SMALL, ("match",)),
]


def cases():
    """Every case that this machine can run."""
    return CLASSES + FURTHER + (EINOPS if importlib.util.find_spec("einops") else []) + NOTEBOOKS
