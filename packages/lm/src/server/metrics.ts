/**
 * Counts of a server's work, in Prometheus's format.
 */
import * as mx from "@lazuli/core"
import type { Batcher } from "../generate/batch"

/** Numbers since the server was created. */
export class Counts {
  requests = 0
  promptTokens = 0
  generatedTokens = 0
  /** Numbers of errors by HTTP status. */
  private readonly errors = new Map<number, number>()

  addError(status: number): void {
    this.errors.set(status, (this.errors.get(status) ?? 0) + 1)
  }

  /** The page of metrics. */
  page(batch: Batcher | null): string {
    const { active = 0, waiting = 0, cacheBytes = 0, prefixBytes = 0 } = batch?.stats() ?? {}
    const errors = Object.fromEntries([...this.errors].map(([status, n]) => [`{status="${status}"}`, n]))
    const rows: [name: string, type: string, help: string, values: number | Record<string, number>][] = [
      ["requests_total", "counter", "Requests that were begun.", this.requests],
      ["errors_total", "counter", "Error responses, by HTTP status; 429 are those refused.", errors],
      ["prompt_tokens_total", "counter", "Tokens of prompts and embedded texts.", this.promptTokens],
      ["generated_tokens_total", "counter", "Generated tokens.", this.generatedTokens],
      ["active_requests", "gauge", "Requests in the batch.", active],
      ["waiting_requests", "gauge", "Requests in the queue.", waiting],
      ["cache_bytes", "gauge", "Memory of keys and values.", cacheBytes],
      ["prefix_bytes", "gauge", "Memory of earlier prompts' keys and values.", prefixBytes],
      ["memory_bytes", "gauge", "Memory of arrays.", mx.getActiveMemory()],
      ["resident_bytes", "gauge", "Resident memory of the process.", process.memoryUsage.rss()],
    ]
    return rows
      .map(([name, type, help, values]) => {
        const full = `lazuli_lm_${name}`
        const lines = Object.entries(typeof values === "number" ? { "": values } : values)
        return [
          `# HELP ${full} ${help}`,
          `# TYPE ${full} ${type}`,
          ...lines.map(([labels, value]) => `${full}${labels} ${value}`),
          "",
        ].join("\n")
      })
      .join("")
  }
}
