/**
 * The chat page at the server's root.
 */

const escaped = (text: string): string => text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`)

/** The page's HTML. */
export const chatPage = (name: string): string => `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escaped(name)}</title>
<style>
  :root { color-scheme: light dark; --text: #1c2733; --back: #fbfbf9; --mine: #dfe9f3; --theirs: #fff; --line: #d5d9dd; --blue: #26619c; --button: #26619c; --red: #a3231f }
  @media (prefers-color-scheme: dark) {
    :root { --text: #e4e8ec; --back: #14191f; --mine: #21384f; --theirs: #1c232b; --line: #36414c; --blue: #6aa7dc; --button: #356ea8; --red: #ef8a85 }
  }
  * { box-sizing: border-box }
  body { font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; min-height: 100dvh; margin: 0 auto; padding: 0 1rem; color: var(--text); background: var(--back); display: flex; flex-direction: column }
  header { display: flex; justify-content: space-between; align-items: center; gap: 1rem; padding: .6rem 0 }
  h1 { margin: 0; font-size: 1.1rem; font-weight: 600; color: var(--blue); overflow-wrap: anywhere }
  #log { flex: 1; display: flex; flex-direction: column; gap: .6rem }
  #log > p { white-space: pre-wrap; overflow-wrap: anywhere; padding: .5rem .8rem; border-radius: .6rem; margin: 0; max-width: 88% }
  .user { align-self: end; background: var(--mine) }
  .assistant { align-self: start; background: var(--theirs); border: 1px solid var(--line) }
  .assistant:empty::before { content: "…"; opacity: .6 }
  .error { color: var(--red) }
  .note { opacity: .7; font-size: .9rem }
  form { display: flex; gap: .5rem; align-items: stretch; position: sticky; bottom: 0; padding: .8rem 0 1rem; background: var(--back) }
  textarea { flex: 1; min-width: 0; font: inherit; color: inherit; background: var(--theirs); padding: .5rem .7rem; border: 1px solid var(--line); border-radius: .5rem; resize: vertical }
  :focus-visible { outline: 2px solid var(--blue); outline-offset: 1px }
  button { font: inherit; padding: .4rem 1.1rem; border: 0; border-radius: .5rem; color: #fff; background: var(--button); cursor: pointer }
  form button { min-width: 5.2rem }
  #new { flex: none; color: inherit; background: none; border: 1px solid var(--line) }
  #new[hidden] { display: block; visibility: hidden }
  button[hidden] { display: none }
</style>
<header><h1>${escaped(name)}</h1><button id="new" hidden>New chat</button></header>
<div id="log" aria-live="polite"></div>
<form id="form">
  <textarea id="text" rows="2" dir="auto" aria-label="Message" placeholder="Message" title="Enter to send, Shift + Enter for a new line"></textarea>
  <button id="send">Send</button>
  <button id="stop" type="button" hidden>Stop</button>
</form>
<script>
  const [log, form, text, send, stop, fresh] = ["log", "form", "text", "send", "stop", "new"].map((id) => document.getElementById(id))
  const messages = []
  let running = null
  // Scrolls along with new text unless the user has scrolled up.
  const following = (change) => {
    const { scrollHeight, clientHeight, scrollTop } = document.documentElement
    const atEnd = scrollHeight - clientHeight - scrollTop < 40
    change()
    if (atEnd) window.scrollTo(0, document.documentElement.scrollHeight)
  }
  const show = (role, content) => {
    const p = document.createElement("p")
    p.className = role
    p.dir = "auto"
    p.textContent = content
    following(() => log.append(p))
    return p
  }
  const busy = (is) => {
    send.hidden = is
    stop.hidden = !is
    fresh.hidden = is || messages.length === 0
  }
  stop.onclick = () => running?.abort()
  fresh.onclick = () => {
    messages.length = 0
    log.replaceChildren()
    busy(false)
    text.focus()
  }
  text.onkeydown = (event) => {
    // The Enter that ends the input of a Chinese or Japanese word is a part of it; in Safari it comes later, as key 229.
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing && event.keyCode !== 229) {
      event.preventDefault()
      form.requestSubmit()
    }
  }
  form.onsubmit = async (event) => {
    event.preventDefault()
    const content = text.value.trim()
    if (!content || running) return
    text.value = ""
    for (const old of log.querySelectorAll(".error, .note")) old.remove()
    messages.push({ role: "user", content })
    const question = show("user", content)
    const p = show("assistant", "")
    // Screen readers read the answer once it is complete.
    p.ariaBusy = "true"
    window.scrollTo(0, document.documentElement.scrollHeight)
    running = new AbortController()
    busy(true)
    let answer = ""
    let failure = null
    let finish = null
    const ask = () => {
      const key = sessionStorage.getItem("key")
      return fetch("/v1/chat/completions", {
        method: "POST",
        signal: running.signal,
        headers: { "content-type": "application/json", ...(key ? { authorization: "Bearer " + key } : {}) },
        body: JSON.stringify({ messages, stream: true }),
      }).catch((error) => {
        throw error.name === "AbortError" ? error : new Error("The server does not answer.")
      })
    }
    try {
      let response = await ask()
      const key = response.status === 401 && prompt("API key")
      if (key) {
        sessionStorage.setItem("key", key)
        response = await ask()
      }
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
          const [choice] = event.choices
          const text = choice?.delta?.content ?? ""
          finish = choice?.finish_reason ?? finish
          answer += text
          following(() => p.append(text))
        }
      }
    } catch (error) {
      if (error.name !== "AbortError") failure = error.message
    }
    p.ariaBusy = "false"
    // A partial answer stays in the conversation; a question without an answer goes back to the text field.
    if (answer) messages.push({ role: "assistant", content: answer })
    else {
      messages.pop()
      p.remove()
      question.remove()
      text.value ||= content
    }
    if (finish === "length") show("note", "The answer was cut off at the maximum length.")
    if (failure) show("error", failure)
    running = null
    busy(false)
    text.focus()
  }
  // Unlike autofocus, this does not wait for the first frame, until which typed text would be lost.
  text.focus()
</script>
</html>
`
