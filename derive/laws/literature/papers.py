"""The papers of the table."""

from __future__ import annotations

from derive.laws.literature.entry import Paper

__all__ = ["PAPERS"]

_PAPERS = (
    Paper(
        "xiong",
        "Xiong et al.",
        "On Layer Normalization in the Transformer Architecture",
        2020,
        "arXiv:2002.04745",
    ),
    Paper(
        "admin",
        "Liu et al.",
        "Understanding the Difficulty of Training Transformers",
        2020,
        "arXiv:2004.08249",
    ),
    Paper(
        "deepnet",
        "Wang et al.",
        "DeepNet: Scaling Transformers to 1,000 Layers",
        2022,
        "arXiv:2203.00555",
    ),
    Paper("kedia", "Kedia et al.", "Transformers Get Stable", 2024, "arXiv:2403.09635"),
    Paper("peri", "Kim et al.", "Peri-LN", 2025, "arXiv:2502.02732"),
    Paper(
        "curse",
        "Sun et al.",
        "The Curse of Depth in Large Language Models",
        2025,
        "arXiv:2502.05795",
    ),
    Paper("dong", "Dong et al.", "Attention is Not All You Need", 2021, "arXiv:2103.03404"),
    Paper("noci", "Noci et al.", "Signal Propagation in Transformers", 2022, "arXiv:2206.03126"),
    Paper(
        "cowsik",
        "Cowsik et al.",
        "Geometric Dynamics of Signal Propagation Predict Trainability of Transformers",
        2024,
        "arXiv:2403.02579",
    ),
    Paper("cho", "Cho and Saul", "Kernel Methods for Deep Learning", 2009, "NIPS 22"),
    Paper("schoenholz", "Schoenholz et al.", "Deep Information Propagation", 2017, "ICLR 2017"),
)

PAPERS: dict[str, Paper] = {paper.key: paper for paper in _PAPERS}
