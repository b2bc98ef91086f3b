"""The configurations of published models, and the model of `models/` that belongs to each kind."""

from models.deepseek import DEEPSEEK_V2, DEEPSEEK_V3, DeepSeek, DeepSeekConfig
from models.gpt import GPT, GPT2_SMALL, GPT2_XL, GPTConfig
from models.llama import LLAMA_2_7B, LLAMA_3_8B, LLAMA_3_70B, Llama, LlamaConfig
from models.mistral import MISTRAL_7B, Mistral, MistralConfig
from models.mixtral import MIXTRAL_8X7B, Mixtral, MixtralConfig
from models.qwen3 import QWEN3_8B, Qwen3, Qwen3Config
from models.qwen3_moe import QWEN3_30B_A3B, QWEN3_235B_A22B, Qwen3Moe, Qwen3MoeConfig

MODELS = {
    GPTConfig: GPT,
    LlamaConfig: Llama,
    MistralConfig: Mistral,
    Qwen3Config: Qwen3,
    MixtralConfig: Mixtral,
    Qwen3MoeConfig: Qwen3Moe,
    DeepSeekConfig: DeepSeek,
}
Config = GPTConfig | LlamaConfig | MistralConfig | Qwen3Config | MixtralConfig | Qwen3MoeConfig | DeepSeekConfig

NAMED: dict[str, Config] = {
    "gpt2": GPT2_SMALL,
    "gpt2-xl": GPT2_XL,
    "llama-2-7b": LLAMA_2_7B,
    "llama-3-8b": LLAMA_3_8B,
    "llama-3-70b": LLAMA_3_70B,
    "mistral-7b": MISTRAL_7B,
    "qwen3-8b": QWEN3_8B,
    "qwen3-30b-a3b": QWEN3_30B_A3B,
    "qwen3-235b-a22b": QWEN3_235B_A22B,
    "mixtral-8x7b": MIXTRAL_8X7B,
    "deepseek-v2": DEEPSEEK_V2,
    "deepseek-v3": DEEPSEEK_V3,
}
COMPARED = ("llama-2-7b", "qwen3-8b", "deepseek-v2", "mixtral-8x7b")  # dense, grouped, latent, experts
