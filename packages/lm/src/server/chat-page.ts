/**
 * The page at the server's root: a conversation with the model, without anything to install.
 */

const escaped = (text: string): string => text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`)

/** The page of a model. */
export const chatPage = (name: string): string => `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escaped(name)}</title>
<style>
  body { font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 0 auto; padding: 1rem; color: #1c2733; background: #fbfbf9 }
  h1 { font-size: 1.1rem; font-weight: 600; color: #26619c }
  #log > p { white-space: pre-wrap; overflow-wrap: anywhere; padding: .5rem .8rem; border-radius: .6rem; margin: .5rem 0 }
  .user { background: #dfe9f3; margin-left: 3rem }
  .assistant { background: #fff; border: 1px solid #e2e2dc; margin-right: 3rem }
  .error { color: #a3231f }
  form { display: flex; gap: .5rem; position: sticky; bottom: 0; padding: .6rem 0; background: #fbfbf9 }
  textarea { flex: 1; font: inherit; padding: .5rem; border: 1px solid #b9c3cd; border-radius: .4rem; resize: vertical }
  button { font: inherit; padding: .4rem 1rem; border: 0; border-radius: .4rem; color: #fff; background: #26619c }
  button:disabled { background: #9aa7b3 }
</style>
<h1>${escaped(name)}</h1>
<div id="log" aria-live="polite"></div>
<form id="form">
  <textarea id="text" rows="2" aria-label="Message" placeholder="Message" autofocus></textarea>
  <button id="send">Send</button>
  <button id="stop" type="button" disabled>Stop</button>
</form>
<script>
  const [log, form, text, send, stop] = ["log", "form", "text", "send", "stop"].map((id) => document.getElementById(id))
  const messages = []
  let running = null
  const show = (role, content) => {
    const p = document.createElement("p")
    p.className = role
    p.textContent = content
    log.append(p)
    p.scrollIntoView({ block: "end" })
    return p
  }
  stop.onclick = () => running?.abort()
  text.onkeydown = (event) => {
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault()
      form.requestSubmit()
    }
  }
  form.onsubmit = async (event) => {
    event.preventDefault()
    const content = text.value.trim()
    if (!content || running) return
    text.value = ""
    messages.push({ role: "user", content })
    show("user", content)
    const p = show("assistant", "")
    running = new AbortController()
    send.disabled = true
    stop.disabled = false
    let answer = ""
    try {
      const key = sessionStorage.getItem("key")
      const response = await fetch("/v1/chat/completions", {
        method: "POST",
        signal: running.signal,
        headers: { "content-type": "application/json", ...(key ? { authorization: "Bearer " + key } : {}) },
        body: JSON.stringify({ messages, stream: true }),
      })
      if (response.status === 401) sessionStorage.setItem("key", prompt("API key") ?? "")
      if (!response.ok) throw new Error((await response.json()).error.message)
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader()
      let held = ""
      for (;;) {
        const { value, done } = await reader.read()
        if (done) break
        held += value
        const lines = held.split("\\n")
        held = lines.pop()
        for (const line of lines) {
          if (!line.startsWith("data: ") || line === "data: [DONE]") continue
          const event = JSON.parse(line.slice(6))
          if (event.error) throw new Error(event.error.message)
          answer += event.choices[0]?.delta?.content ?? ""
          p.textContent = answer
        }
      }
    } catch (error) {
      if (error.name !== "AbortError") show("error", error.message)
    }
    // The part of an answer that came before a stop stays in the conversation.
    messages.push({ role: "assistant", content: answer })
    running = null
    send.disabled = false
    stop.disabled = true
    text.focus()
  }
</script>
</html>
`
