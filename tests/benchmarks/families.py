"""The families of transformers in the zoo: their default sizes on the meta device, unless something must be given.

>>> Family("Llama", "LlamaForCausalLM").case().spec
'input_ids=B T:int64'
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from case import Case
from torch import nn

IDS = {"input_ids": "B T:int64"}
BOTH = {"input_ids": "B S:int64", "decoder_input_ids": "B T:int64"}
IMAGE = {"pixel_values": "B 3 224 224"}
ANY_IMAGE = {"pixel_values": "B 3 H W"}


@dataclass(frozen=True, slots=True)
class Family:
    """A model class of transformers, what its configuration needs, and the inputs of its `forward`."""

    name: str
    model: str
    inputs: Mapping[str, str] = field(default_factory=lambda: IDS)
    config: Mapping[str, Any] = field(default_factory=dict)

    def case(self) -> Case:
        return Case("transformers", self.name, partial(_build, self.model, self.config), named=self.inputs)


def _build(model: str, config: Mapping[str, Any]) -> nn.Module:
    import transformers

    kind = getattr(transformers, model)
    return kind(kind.config_class(**config))


FAMILIES = (
    Family("GPT-2", "GPT2LMHeadModel"),
    Family("BERT", "BertForMaskedLM"),
    Family("RoBERTa", "RobertaForMaskedLM"),
    Family("ELECTRA", "ElectraForPreTraining"),
    Family("DeBERTa-v2", "DebertaV2ForMaskedLM"),
    Family("T5", "T5ForConditionalGeneration", BOTH),
    Family("BART", "BartForConditionalGeneration", BOTH),
    Family("Switch", "SwitchTransformersForConditionalGeneration", BOTH),
    Family("Llama", "LlamaForCausalLM"),
    Family("Mistral", "MistralForCausalLM"),
    Family("Mixtral", "MixtralForCausalLM"),
    Family("Qwen3", "Qwen3ForCausalLM"),
    Family("Qwen3-MoE", "Qwen3MoeForCausalLM"),
    Family("Gemma-2", "Gemma2ForCausalLM"),
    Family("Phi-3", "Phi3ForCausalLM"),
    Family("DeepSeek-V3", "DeepseekV3ForCausalLM"),
    Family("gpt-oss", "GptOssForCausalLM"),
    Family("Mamba", "MambaForCausalLM"),
    Family("XLNet", "XLNetLMHeadModel"),
    Family("Longformer", "LongformerForMaskedLM"),
    Family("Bloom", "BloomForCausalLM"),
    Family("ViT", "ViTForImageClassification", IMAGE),
    Family("Swin", "SwinForImageClassification", IMAGE),
    Family("ConvNeXt", "ConvNextForImageClassification", IMAGE),
    Family("ConvNeXt", "ConvNextForImageClassification", ANY_IMAGE),
    Family("SegFormer", "SegformerForSemanticSegmentation", IMAGE),
    Family("SegFormer", "SegformerForSemanticSegmentation", ANY_IMAGE),
    Family("DETR", "DetrForObjectDetection", {"pixel_values": "B 3 800 800"}),
    Family("DETR", "DetrForObjectDetection", ANY_IMAGE),
    Family("Mask2Former", "Mask2FormerModel", {"pixel_values": "B 3 384 384"}),
    Family("Mask2Former", "Mask2FormerModel", ANY_IMAGE),
    Family("CLIP", "CLIPModel", {"input_ids": "N T:int64", **IMAGE}),
    Family("SigLIP", "SiglipModel", {"input_ids": "N 64:int64", **IMAGE}),
    Family("Llava", "LlavaForConditionalGeneration", {**IDS, "pixel_values": "N 3 336 336"}),
    Family(
        "Whisper", "WhisperForConditionalGeneration", {"input_features": "B 80 3000", "decoder_input_ids": "B T:int64"}
    ),
    Family("wav2vec2", "Wav2Vec2ForCTC", {"input_values": "B T"}),
)
