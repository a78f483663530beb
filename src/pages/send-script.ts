/**
 * Script of the API page where a dashboard is served: whoever is signed in to it can send each method of v1 from here, with the
 * dashboard's session. No root key is in the page.
 */
export const SEND_SCRIPT = `
addEventListener('DOMContentLoaded', async () => {
  const sending = document.getElementById('sending')
  const ask = (name, body, workspaceId) => fetch('/dashboard/api/' + name, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', 'X-Tollgate-Dashboard': '1', ...(workspaceId && { 'X-Tollgate-Workspace': workspaceId }) },
    body,
  })
  const made = (tag, fields, ...children) => { const element = Object.assign(document.createElement(tag), fields); element.append(...children); return element }
  const state = await ask('session.state', '{}').then((answer) => answer.ok ? answer.json() : null, () => null)
  sending.hidden = false
  if (!state?.sessions.length) return
  const choice = made('select', { ariaLabel: 'Workspace that calls are sent to' }, ...state.sessions.map((each) => made('option', { value: each.workspaceId, textContent: each.workspaceName })).reverse())
  const nameOf = (workspaceId) => { const found = state.sessions.find((each) => each.workspaceId === workspaceId); return found.name ?? found.rootKeyId }
  const who = made('b', { textContent: nameOf(choice.value) })
  choice.onchange = () => { who.textContent = nameOf(choice.value) }
  sending.replaceChildren('Calls from this page are sent to the workspace ', state.sessions.length > 1 ? choice : made('b', { textContent: choice.selectedOptions[0].textContent }), ' with the root key ', who, '.')

  const readable = (text) => { try { return JSON.stringify(JSON.parse(text), null, 2) } catch { return text } }
  for (const section of document.querySelectorAll('.method[data-call]')) {
    const { call, body } = section.dataset
    const open = made('button', { textContent: 'Send…' })
    open.setAttribute('aria-expanded', 'false')
    const text = readable(body)
    const input = made('textarea', { value: text, rows: Math.min(16, text.split('\\n').length + 1), spellcheck: false, ariaLabel: 'Body of ' + call })
    const send = made('button', { textContent: 'Send' }), status = made('output'), shown = made('pre', { hidden: true, tabIndex: 0 })
    const panel = made('div', { className: 'send', hidden: true }, input, made('p', {}, send, ' ', status), shown)
    open.onclick = () => { panel.hidden = !panel.hidden; open.setAttribute('aria-expanded', !panel.hidden); if (!panel.hidden) input.focus() }
    input.onkeydown = (event) => { if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) send.click() }
    send.onclick = async () => {
      if (send.disabled) return
      try { JSON.parse(input.value) } catch (cause) { status.textContent = 'Not JSON: ' + cause.message; return }
      send.disabled = true
      status.textContent = 'Sending…'
      shown.hidden = true
      try {
        const answer = await ask(call, input.value, choice.value)
        shown.textContent = readable(await answer.text())
        shown.hidden = false
        status.textContent = 'Answered ' + answer.status
      } catch { status.textContent = 'The server does not answer.' }
      send.disabled = false
    }
    section.querySelector('.examples .block, .examples pre').after(open, panel)
  }
})
`
