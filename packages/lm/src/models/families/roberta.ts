/**
 * RoBERTa and XLM-RoBERTa: BERT with positions that start after the padding token's id.
 */
import type { Family } from "../network"
import { Bert, sanitizeEncoder } from "./bert"

export const roberta: Family = {
  modelTypes: ["roberta", "xlm-roberta"],
  make: (config) => new Bert(config, config.number("pad_token_id", 1) + 1, "roberta"),
  sanitize: sanitizeEncoder,
}
