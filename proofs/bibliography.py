"""The sources of claims; each is cited with the place and with what was seen of it."""

from __future__ import annotations

from derive.proof import Source

__all__ = ["BIBLIOGRAPHY"]

HANDBOOK = Source(
    "handbook",
    "Language AI Handbook",
    2025,
    "Pre-Norm vs Post-Norm: The Original Transformer",
    "a chapter that this project was begun from",
)
COURSE = Source(
    "course",
    "A course on language models",
    2025,
    "Layer normalization: post-normalization and pre-normalization",
    "a lesson that this project was begun from",
)
INTERVIEW = Source(
    "interview",
    "An interview preparation page",
    2026,
    "Pre-norm and post-norm are interchangeable: spot the error",
    "a page that this project was begun from",
)
VASWANI = Source(
    "vaswani2017", "Vaswani and others", 2017, "Attention Is All You Need", "arXiv:1706.03762"
)
HE = Source(
    "he2015",
    "He and others",
    2015,
    "Deep Residual Learning for Image Recognition",
    "arXiv:1512.03385",
)
GPT1 = Source(
    "radford2018",
    "Radford and others",
    2018,
    "Improving Language Understanding by Generative Pre-Training",
    "the GPT-1 report",
)
BERT = Source("devlin2018", "Devlin and others", 2018, "BERT", "arXiv:1810.04805")
BAEVSKI = Source(
    "baevski2018",
    "Baevski and Auli",
    2018,
    "Adaptive Input Representations for Neural Language Modeling",
    "arXiv:1809.10853",
)
DOMHAN = Source(
    "domhan2018",
    "Domhan",
    2018,
    "How Much Attention Do You Need? A Granular Analysis of Neural Machine Translation "
    "Architectures",
    "ACL 2018",
)
WANG = Source(
    "wang2019",
    "Wang and others",
    2019,
    "Learning Deep Transformer Models for Machine Translation",
    "arXiv:1906.01787",
)
MEGATRON = Source(
    "shoeybi2019",
    "Shoeybi and others",
    2019,
    "Megatron-LM: Training Multi-Billion Parameter Language Models Using Model Parallelism",
    "arXiv:1909.08053",
)
T5 = Source(
    "raffel2019",
    "Raffel and others",
    2019,
    "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer",
    "arXiv:1910.10683",
)
BART = Source("lewis2019", "Lewis and others", 2019, "BART", "arXiv:1910.13461")
MBART = Source(
    "liu2020mbart",
    "Liu and others",
    2020,
    "Multilingual Denoising Pre-training for Neural Machine Translation",
    "arXiv:2001.08210",
)
BROWN = Source(
    "brown2020", "Brown and others", 2020, "Language Models are Few-Shot Learners", "GPT-3"
)
EXDEEP = Source(
    "liu2020deep",
    "Liu, Duh, Liu and Gao",
    2020,
    "Very Deep Transformers for Neural Machine Translation",
    "arXiv:2008.07772",
)
VIT = Source(
    "dosovitskiy2020",
    "Dosovitskiy and others",
    2020,
    "An Image is Worth 16x16 Words",
    "arXiv:2010.11929",
)
SWIN2 = Source("liu2021", "Liu and others", 2021, "Swin Transformer V2", "arXiv:2111.09883")
COGVIEW = Source("ding2021", "Ding and others", 2021, "CogView", "arXiv:2105.13290")
OPT = Source(
    "zhang2022",
    "Zhang and others",
    2022,
    "OPT: Open Pre-trained Transformer Language Models",
    "arXiv:2205.01068",
)
METASEQ = Source(
    "metaseq388",
    "The developers of metaseq",
    2022,
    "Train and release OPT-350m with layer norm, issue 388 of metaseq",
    "github.com/facebookresearch/metaseq",
)
BLOOM = Source("scao2022", "Le Scao and others", 2022, "BLOOM", "arXiv:2211.05100")
GLM = Source(
    "zeng2022", "Zeng and others", 2022, "GLM-130B: An Open Bilingual Model", "arXiv:2210.02414"
)
LLAMA3 = Source(
    "grattafiori2024",
    "Grattafiori and others",
    2024,
    "The Llama 3 Herd of Models",
    "arXiv:2407.21783",
)
GEMMA2 = Source("gemma2024", "Gemma Team", 2024, "Gemma 2", "arXiv:2408.00118")
DEEPSEEK3 = Source("deepseek2024", "DeepSeek-AI", 2024, "DeepSeek-V3", "arXiv:2412.19437")
OLMO2 = Source("olmo2025", "OLMo Team", 2025, "2 OLMo 2 Furious", "arXiv:2501.00656")
MINIMAX = Source("minimax2025", "MiniMax", 2025, "MiniMax-01", "arXiv:2501.08313")
PYTORCH = Source("pytorch", "The PyTorch developers", 2016, "PyTorch, its module torch.nn", "2.13")
TRANSFORMERS = Source(
    "transformers", "The developers of transformers", 2018, "Hugging Face transformers", "5.24"
)
CHEN = Source(
    "chen2018",
    "Chen and others",
    2018,
    "The Best of Both Worlds: Combining Recent Advances in Neural Machine Translation",
    "arXiv:1804.09849",
)
BA = Source("ba2016", "Ba, Kiros and Hinton", 2016, "Layer Normalization", "arXiv:1607.06450")
ZHANG = Source(
    "zhang2019",
    "Zhang and Sennrich",
    2019,
    "Root Mean Square Layer Normalization",
    "arXiv:1910.07467",
)
XIONG = Source(
    "xiong2020",
    "Xiong and others",
    2020,
    "On Layer Normalization in the Transformer Architecture",
    "arXiv:2002.04745",
)
ADMIN = Source(
    "liu2020",
    "Liu and others",
    2020,
    "Understanding the Difficulty of Training Transformers",
    "arXiv:2004.08249",
)
DEEPNET = Source(
    "wang2022",
    "Wang and others",
    2022,
    "DeepNet: Scaling Transformers to 1,000 Layers",
    "arXiv:2203.00555",
)
B2T = Source(
    "takase2022",
    "Takase and others",
    2022,
    "B2T Connection: Serving Stability and Performance in Deep Transformers",
    "arXiv:2206.00330",
)
RESIDUAL = Source(
    "xie2023",
    "Xie and others",
    2023,
    "ResiDual: Transformer with Dual Residual Connections",
    "arXiv:2304.14802",
)
PERI = Source(
    "kim2025",
    "Kim and others",
    2025,
    "Peri-LN: Revisiting Normalization Layer in the Transformer Architecture",
    "arXiv:2502.02732",
)
CURSE = Source(
    "sun2025",
    "Sun and others",
    2025,
    "The Curse of Depth in Large Language Models",
    "arXiv:2502.05795",
)
MIXLN = Source(
    "li2024",
    "Li, Yin and Liu",
    2024,
    "Mix-LN: Unleashing the Power of Deeper Layers by Combining Pre-LN and Post-LN",
    "arXiv:2412.13795",
)
DEEPSCALE = Source(
    "kedia2024",
    "Kedia and others",
    2024,
    "Transformers Get Stable: An End-to-End Signal Propagation Theory for Language Models",
    "arXiv:2403.09635",
)
NOCI = Source(
    "noci2022",
    "Noci and others",
    2022,
    "Signal Propagation in Transformers: Theoretical Perspectives and the Role of Rank Collapse",
    "arXiv:2206.03126",
)
DONG = Source(
    "dong2021",
    "Dong, Cordonnier and Loukas",
    2021,
    "Attention Is Not All You Need: Pure Attention Loses Rank Doubly Exponentially with Depth",
    "arXiv:2103.03404",
)
KIM = Source(
    "kim2021",
    "Kim, Papamakarios and Mnih",
    2021,
    "The Lipschitz Constant of Self-Attention",
    "arXiv:2006.04710",
)
REZERO = Source(
    "bachlechner2020",
    "Bachlechner and others",
    2020,
    "ReZero is All You Need: Fast Convergence at Large Depth",
    "arXiv:2003.04887",
)
NGPT = Source(
    "loshchilov2024",
    "Loshchilov and others",
    2024,
    "nGPT: Normalized Transformer with Representation Learning on the Hypersphere",
    "arXiv:2410.01131",
)
DYT = Source(
    "zhu2025", "Zhu and others", 2025, "Transformers without Normalization", "arXiv:2503.10622"
)
MHC = Source(
    "xie2025",
    "Xie and others",
    2025,
    "mHC: Manifold-Constrained Hyper-Connections",
    "arXiv:2512.24880",
)
RADFORD = Source(
    "radford2019",
    "Radford and others",
    2019,
    "Language Models are Unsupervised Multitask Learners",
    "the GPT-2 report",
)
ROFORMER = Source(
    "su2021",
    "Su and others",
    2021,
    "RoFormer: Enhanced Transformer with Rotary Position Embedding",
    "arXiv:2104.09864",
)
FIXUP = Source(
    "zhang2019b",
    "Zhang, Dauphin and Ma",
    2019,
    "Fixup Initialization: Residual Learning Without Normalization",
    "arXiv:1901.09321",
)
SKIPINIT = Source(
    "de2020",
    "De and Smith",
    2020,
    "Batch Normalization Biases Residual Blocks Towards the Identity Function in Deep Networks",
    "arXiv:2002.10444",
)
CAIT = Source(
    "touvron2021",
    "Touvron and others",
    2021,
    "Going deeper with Image Transformers",
    "arXiv:2103.17239",
)
GPTJ = Source(
    "wang2021",
    "Wang and Komatsuzaki",
    2021,
    "GPT-J-6B: A 6 Billion Parameter Autoregressive Language Model",
    "the code of mesh-transformer-jax",
)
HYBRIDNORM = Source(
    "zhuo2025",
    "Zhuo and others",
    2025,
    "HybridNorm: Towards Stable and Efficient Transformer Training via Hybrid Normalization",
    "arXiv:2503.04598",
)
SPANNORM = Source(
    "spannorm2026",
    "The authors of SpanNorm",
    2026,
    "SpanNorm",
    "arXiv:2601.22580",
)
SIAMESE = Source(
    "siamesenorm2026",
    "The authors of SiameseNorm",
    2026,
    "SiameseNorm",
    "arXiv:2602.08064",
)
HC = Source(
    "zhu2024",
    "Zhu and others",
    2024,
    "Hyper-Connections",
    "arXiv:2409.19606",
)
CHO_SAUL = Source("cho2009", "Cho and Saul", 2009, "Kernel Methods for Deep Learning", "NIPS 2009")

BIBLIOGRAPHY: dict[str, Source] = {
    source.key: source for source in list(globals().values()) if isinstance(source, Source)
}
