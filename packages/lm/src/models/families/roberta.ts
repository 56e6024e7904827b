/**
 * RoBERTa and XLM-RoBERTa, multilingual embedders and rerankers: BERT whose positions begin behind the padding token's number.
 */
import type { Family } from "../network"
import { Bert, sanitizeEncoder } from "./bert"

export const roberta: Family = {
  modelTypes: ["roberta", "xlm-roberta"],
  make: (config) => new Bert(config, config.number("pad_token_id", 1) + 1),
  sanitize: sanitizeEncoder,
}
