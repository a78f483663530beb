import { TOKENS } from './tokens.ts'

/*
 * Style and script of every page. Both are part of the page and nothing is fetched, so pages work without internet access
 * and their policy can forbid everything else. Without the script a page is complete, only longer: it adds search, filter,
 * copy buttons and the switch between light and dark.
 */

export const STYLE = `${TOKENS}:root { font: 16px/1.6 system-ui, sans-serif; scroll-padding-top: 4.5rem }
* { box-sizing: border-box }
[hidden] { display: none !important }
body { margin: 0; color: var(--text); background: var(--paper) }
a { color: var(--accent); text-underline-offset: .15em }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; border-radius: .2rem }
button { font: inherit; color: inherit; background: none; border: 1px solid var(--line); border-radius: .4rem; cursor: pointer; padding: .2rem .6rem }
button:hover { border-color: var(--soft) }
.skip { position: absolute; left: -99rem } .skip:focus { left: 1rem; top: 1rem; z-index: 3; background: var(--paper); padding: .5rem }

.bar { position: sticky; top: 0; z-index: 2; display: flex; align-items: center; gap: 1.25rem; height: 3.5rem; padding: 0 1.5rem; background: var(--paper); border-bottom: 1px solid var(--line) }
.bar a { color: var(--soft); text-decoration: none; white-space: nowrap } .bar a:hover, .bar a[aria-current] { color: var(--text) } .bar a[aria-current] { font-weight: 600 }
.bar .home { color: var(--text); font-weight: 700 } .bar .home small { font-weight: 400; color: var(--soft) }
.bar nav { display: flex; gap: 1.25rem; margin-right: auto; font-size: .925rem }
#menu { display: none } .bar button { font-size: .875rem }

.layout { display: grid; grid-template-columns: 17.5rem minmax(0, 1fr) }
.side { position: sticky; top: 3.5rem; height: calc(100vh - 3.5rem); overflow-y: auto; padding: 1.25rem 1rem 3rem 1.5rem; background: var(--raised); border-right: 1px solid var(--line); font-size: .875rem }
.side h2 { font-size: .75rem; font-weight: 600; color: var(--soft); margin: 1.5rem 0 .3rem; letter-spacing: .02em }
.side > h2:first-child { margin-top: 0 }
.side a { display: flex; justify-content: space-between; gap: .5rem; padding: .17rem .5rem; margin-left: -.5rem; border-radius: .3rem; color: var(--text); text-decoration: none }
.side a:hover { background: var(--line) } .side a[aria-current] { color: var(--accent); font-weight: 600; background: var(--sunken) }
.side .sub { margin-left: .5rem; color: var(--soft) }
.side i { font: 600 .625rem/2 var(--mono); color: var(--soft) }
.filter { position: sticky; top: -1.25rem; z-index: 1; margin: -1.25rem -1rem 1rem -1.5rem; padding: 1.25rem 1rem .75rem 1.5rem; background: var(--raised) }
.filter input { width: 100%; font: inherit; color: inherit; background: var(--paper); border: 1px solid var(--line); border-radius: .4rem; padding: .4rem .6rem }
.filter output { display: block; color: var(--soft); font-size: .8rem; padding-top: .3rem }

main { min-width: 0; padding: 2rem clamp(1rem, 4vw, 3.5rem) 6rem }
h1 { font-size: 2rem; line-height: 1.2; letter-spacing: -.015em; margin: 0 0 1rem }
h2, h3, h4 { line-height: 1.3 }
p, ul, ol { margin: .6rem 0 } li { margin: .2rem 0 } ul, ol { padding-left: 1.4rem }
code, pre { font: .875em/1.55 var(--mono) }
:not(pre) > code { background: var(--sunken); border-radius: .25rem; padding: .1em .3em; overflow-wrap: anywhere }
pre { position: relative; background: var(--sunken); border: 1px solid var(--line); border-radius: .5rem; padding: .8rem 1rem; margin: .8rem 0; overflow-x: auto; font-size: .8125rem; tab-size: 2 }
pre code { font-size: inherit }
.copy { position: absolute; top: .4rem; right: .4rem; font: .75rem system-ui, sans-serif; background: var(--sunken); opacity: 0; transition: opacity .1s }
.block { position: relative } .block:hover .copy, .copy:focus-visible { opacity: 1 }
@media (hover: none) { .copy { opacity: .85 } pre { padding-top: 2.2rem } }
table { width: 100%; border-collapse: collapse; font-size: .925rem; margin: 1rem 0; display: block; overflow-x: auto }
th { text-align: left; font-weight: 600; font-size: .85rem; color: var(--soft) }
th, td { border-bottom: 1px solid var(--line); padding: .5rem .9rem .5rem 0; vertical-align: top } td code { overflow-wrap: break-word }
mark { background: var(--mark); color: inherit }

.prose { max-width: 60rem } .prose > :is(p, ul, ol, h2, h3, .next) { max-width: 48rem } .prose h2 { font-size: 1.3rem; margin: 2.5rem 0 .6rem } .prose h3 { font-size: 1.05rem; margin: 1.8rem 0 .4rem }
.prose h1 a, .prose h2 a, .prose h3 a, .api a, .tag a, .method > header a { color: inherit; text-decoration: none }
.prose :is(h2, h3) a:hover::after, :is(.api, .tag, .summary) a:hover::after { content: ' #'; color: var(--soft); font-weight: 400 }
.lead { font-size: 1.1rem; color: var(--soft) }
.next { display: flex; justify-content: space-between; gap: 1rem; margin-top: 4rem; padding-top: 1rem; border-top: 1px solid var(--line) }

.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(15rem, 1fr)); gap: .75rem; max-width: 76rem; margin: .9rem 0 0; padding: 0; list-style: none }
.cards li { margin: 0 } .cards a { display: block; height: 100%; padding: .8rem 1rem; border: 1px solid var(--line); border-radius: .5rem; color: inherit; text-decoration: none }
.cards a:hover { border-color: var(--accent) } .cards b { display: block } .cards span { color: var(--soft); font-size: .875rem; line-height: 1.45; display: block }

.search { position: sticky; top: 3.5rem; z-index: 1; max-width: 76rem; padding: .75rem 0; background: var(--paper) }
.search input { width: 100%; font: inherit; font-size: 1.05rem; color: inherit; background: var(--paper); border: 1px solid var(--soft); border-radius: .5rem; padding: .6rem .9rem }
.search output { display: block; color: var(--soft); font-size: .85rem; padding-top: .3rem } .search output:empty { display: none }
.hits { max-width: 60rem; margin: 0; padding: 0; list-style: none } .hits li { margin: 0; padding: .8rem 0; border-bottom: 1px solid var(--line) }
.hits b { font-weight: 600 } .hits small { color: var(--soft); margin-left: .5rem } .hits p { margin: .2rem 0 0; color: var(--soft); font-size: .925rem }
.purpose { font-size: 1.3rem; margin: 2.5rem 0 0 } .about { margin: .2rem 0 0; color: var(--soft) }
.methods { display: grid; grid-template-columns: 8rem minmax(0, 1fr); gap: .35rem 1rem; max-width: 76rem; font-size: .925rem }
.methods dt { color: var(--soft); font: .85rem/1.8 var(--mono) } .methods dd { margin: 0; display: flex; flex-wrap: wrap; gap: 0 1rem } .methods a { font: .85rem/1.8 var(--mono); text-decoration: none } .methods a:hover { text-decoration: underline }
.index ul { columns: 20rem; font-size: .925rem } .index small { color: var(--soft) }
.side .find { border: 1px solid var(--line); background: var(--paper); color: var(--soft); margin: 0 0 1.25rem -.5rem; padding: .35rem .6rem }

.api { font-size: 1.8rem; margin: 4rem 0 .6rem }
.tag { font-size: 1.4rem; margin: 4rem 0 0; padding-top: 1.5rem; border-top: 2px solid var(--line) }
.method { padding: 2rem 0; border-bottom: 1px solid var(--line); scroll-margin-top: 3.5rem }
.method h4 { margin: 1.5rem 0 .2rem; font-size: .9rem } .method .summary { margin: 0 0 .3rem; font-size: 1.2rem }
.path { margin: 0; font-family: var(--mono); font-size: .9rem; overflow-wrap: anywhere } .path b { font-size: .75rem; margin-right: .4rem }
.GET { color: var(--ok) } .POST { color: var(--accent) }
.facts { color: var(--soft); font-size: .9rem; margin: .5rem 0 0 }
.halves { display: grid; grid-template-columns: minmax(0, 1fr); column-gap: 3rem; max-width: 84rem }
.fields { margin: 0; padding: 0; list-style: none }
.fields li { margin: 0; padding: .6rem 0; border-top: 1px solid var(--line) }
.fields li.d1 { margin-left: 1.25rem } .fields li.d2 { margin-left: 2.5rem } .fields li.d3 { margin-left: 3.75rem }
.fields p { margin: .1rem 0 0; font-size: .925rem }
.name { font: 600 .85rem var(--mono); margin-right: .5rem } .type { color: var(--soft); font-size: .825rem; overflow-wrap: anywhere }
.must { color: var(--bad); font-size: .8rem; font-weight: 600; margin-left: .4rem } .old { color: var(--soft); font-size: .8rem; border: 1px solid var(--line); border-radius: .3rem; padding: 0 .3rem; margin-left: .4rem }
.empty { color: var(--soft); font-size: .925rem }
.examples h4 { color: var(--soft); font-weight: 600; font-size: .8rem } .examples pre { max-height: 26rem; overflow: auto; margin-top: .3rem }
details { margin-top: 1.5rem } summary { cursor: pointer; font-weight: 600; font-size: .9rem }
.send { margin: .6rem 0 0 } .send textarea { width: 100%; font: .8125rem/1.55 var(--mono); color: inherit; background: var(--paper); border: 1px solid var(--soft); border-radius: .5rem; padding: .6rem .8rem; resize: vertical } .send output { color: var(--soft); font-size: .85rem }
.errors { margin: .4rem 0 0; padding: 0; list-style: none; font-size: .9rem } .errors li { padding: .45rem 0; border-top: 1px solid var(--line); margin: 0 }
.errors a { font: .8rem var(--mono) } .errors b { font-weight: 600; margin-right: .4rem } .errors code { font-size: .8rem }
.status { display: inline-block; font: 600 .85rem var(--mono); color: var(--bad); border: 1px solid currentColor; border-radius: .4rem; padding: .1rem .5rem }
.code { font-family: var(--mono); overflow-wrap: anywhere; margin: .8rem 0 .5rem }

@media (min-width: 80rem) { .halves { grid-template-columns: minmax(0, 1.1fr) minmax(0, 1fr) } .examples { position: sticky; top: 4.5rem; align-self: start } .examples h4:first-child { margin-top: 1.5rem } }
@media (max-width: 56rem) {
  .layout { display: block } .bar { gap: .9rem; padding: 0 1rem } .bar nav { gap: .9rem } .bar .home small { display: none }
  .side { position: static; height: auto; border-right: 0; border-bottom: 1px solid var(--line) }
  .scripted .side { position: fixed; inset: 3.5rem 0 0; z-index: 1; height: auto; display: none } .scripted .side.open { display: block }
  .scripted #menu { display: block } .methods { grid-template-columns: minmax(0, 1fr); gap: 0 } .methods dt { margin-top: .5rem } .side a { padding: .4rem .5rem } h1 { font-size: 1.6rem }
  .prose :is(th, td):first-child { position: sticky; left: 0; background: var(--paper); min-width: 7.5rem; max-width: 9.5rem } td:first-child code { overflow-wrap: anywhere } .prose td:last-child:not(:nth-child(2)) { min-width: 9rem }
}
@media (max-width: 30rem) { .bar .extra { display: none } }
@media print { .bar, .side, .copy { display: none } .layout { display: block } details::details-content { content-visibility: visible } }
`

export const SCRIPT = `
const root = document.documentElement
root.classList.add('scripted')
const stored = { get: () => { try { return localStorage.theme } catch { return undefined } }, set: (value) => { try { localStorage.theme = value } catch {} } }
const isDark = () => (root.dataset.theme ?? (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light')) === 'dark'
if (stored.get()) root.dataset.theme = stored.get()
addEventListener('DOMContentLoaded', () => {
  const theme = document.getElementById('theme')
  const label = () => { theme.textContent = isDark() ? 'Light' : 'Dark' }
  theme.hidden = false
  label()
  theme.onclick = () => { root.dataset.theme = isDark() ? 'light' : 'dark'; stored.set(root.dataset.theme); label() }

  const menu = document.getElementById('menu'), side = document.getElementById('side')
  const show = (isOpen) => { side?.classList.toggle('open', isOpen); menu.setAttribute('aria-expanded', isOpen) }
  addEventListener('keydown', ({ key }) => { if (key === 'Escape' && side?.classList.contains('open') && getComputedStyle(menu).display !== 'none') { show(false); menu.focus() } })
  if (side) { menu.onclick = () => show(!side.classList.contains('open')); side.addEventListener('click', ({ target }) => { if (target.closest('a')) show(false) }) }
  else menu.remove()

  // On plain HTTP from other machines browsers offer no clipboard, so a field is selected and copied.
  const copied = async (text) => {
    try { await navigator.clipboard.writeText(text); return true } catch {
      const field = document.createElement('textarea'), before = document.activeElement
      field.value = text
      field.style.position = 'fixed'
      document.body.append(field)
      field.select()
      const isCopied = document.execCommand('copy')
      field.remove()
      before?.focus()
      return isCopied
    }
  }
  for (const pre of document.querySelectorAll('pre')) {
    const block = document.createElement('div'), button = document.createElement('button')
    block.className = 'block'
    button.className = 'copy'
    button.textContent = 'Copy'
    button.onclick = async () => { button.textContent = await copied(pre.textContent.trimEnd()) ? 'Copied' : 'Cannot copy'; setTimeout(() => { button.textContent = 'Copy' }, 1500) }
    pre.replaceWith(block)
    block.append(pre, button)
  }

  // What scrolls must be in reach of the keyboard, and nothing else.
  const scrolling = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const scrolls = target.scrollWidth > target.clientWidth || target.scrollHeight > target.clientHeight
      if (scrolls) target.tabIndex = 0
      else target.removeAttribute('tabindex')
    }
  })
  for (const block of document.querySelectorAll('pre, table')) scrolling.observe(block)

  const filter = document.getElementById('filter')
  if (filter) {
    const input = filter.querySelector('input'), count = filter.querySelector('output')
    const methods = [...document.querySelectorAll('.method')]
    const guides = [...side.querySelectorAll('[data-words]')], more = document.getElementById('more')
    const apply = () => {
      const words = input.value.toLowerCase().split(/\\s+/).filter(Boolean)
      const hits = new Set(methods.filter((each) => words.every((word) => each.dataset.words.includes(word))).map((each) => each.id))
      for (const each of methods) each.hidden = !hits.has(each.id)
      for (const link of side.querySelectorAll('a[href^="#"]')) link.hidden = !hits.has(link.hash.slice(1))
      for (const group of document.querySelectorAll('[data-group]')) group.hidden = !group.querySelector(group.closest('.side') ? 'a:not([hidden])' : '.method:not([hidden])')
      for (const guide of guides) guide.hidden = !words.length || !words.every((word) => guide.dataset.words.includes(word))
      more.hidden = !words.length
      more.querySelector('a').href = '/docs?q=' + encodeURIComponent(input.value)
      count.textContent = words.length ? hits.size + ' of ' + methods.length + ' methods' : ''
    }
    filter.hidden = false
    input.oninput = apply
    input.onkeydown = ({ key }) => { if (key === 'Escape') { input.value = ''; apply(); input.blur() } }
    addEventListener('keydown', (event) => {
      if (event.key !== '/' || event.ctrlKey || event.metaKey || event.target.closest('input, textarea')) return
      event.preventDefault()
      show(true)
      input.focus()
    })
    const asked = new URLSearchParams(location.search).get('q')
    if (asked) { input.value = asked; apply() }
  }

  const search = document.getElementById('search')
  if (search) {
    const input = search.querySelector('input'), count = search.querySelector('output')
    const hits = document.getElementById('hits'), contents = document.getElementById('contents')
    const entries = [...document.querySelectorAll('.index li')].map((item) => {
      const link = item.querySelector('a')
      const [title, page, text] = [link.textContent, item.querySelector('small').textContent, item.dataset.text]
      return { href: link.getAttribute('href'), title, page, text, names: (title + ' ' + page).toLowerCase(), body: text.toLowerCase() }
    })
    const worth = (entry, word) => (entry.title.toLowerCase().includes(word) ? 8 : 0) + (entry.page.toLowerCase().includes(word) ? 4 : 0) + Math.min(entry.body.split(word).length - 1, 3)
    const marked = (target, text, words) => {
      const lower = text.toLowerCase()
      let at = 0
      while (at < text.length) {
        const next = words.map((word) => ({ word, index: lower.indexOf(word, at) })).filter(({ index }) => index >= 0).sort((a, b) => a.index - b.index || b.word.length - a.word.length)[0]
        if (!next) break
        const mark = document.createElement('mark')
        mark.textContent = text.slice(next.index, next.index + next.word.length)
        target.append(text.slice(at, next.index), mark)
        at = next.index + next.word.length
      }
      target.append(text.slice(at))
    }
    const around = (entry, words) => {
      const first = Math.min(...words.map((word) => entry.body.indexOf(word)).filter((index) => index >= 0))
      const from = Number.isFinite(first) && first > 60 ? entry.text.indexOf(' ', first - 60) + 1 : 0
      const end = entry.text.length > from + 200 ? entry.text.lastIndexOf(' ', from + 200) : entry.text.length
      return (from ? '… ' : '') + entry.text.slice(from, end) + (end < entry.text.length ? ' …' : '')
    }
    const apply = () => {
      const words = input.value.toLowerCase().split(/\\s+/).filter(Boolean)
      const found = words.length === 0 ? [] : entries
        .filter((entry) => words.every((word) => entry.names.includes(word) || entry.body.includes(word)))
        .map((entry) => ({ entry, score: words.reduce((sum, word) => sum + worth(entry, word), entry.title.toLowerCase().includes(words.join(' ')) ? 8 : entry.body.includes(words.join(' ')) ? 4 : 0) }))
        .sort((a, b) => b.score - a.score)
      hits.replaceChildren(...found.slice(0, 40).map(({ entry }) => {
        const item = document.createElement('li'), link = document.createElement('a'), title = document.createElement('b'), page = document.createElement('small'), text = document.createElement('p')
        link.href = entry.href
        marked(title, entry.title, words)
        link.append(title)
        page.textContent = entry.page === entry.title ? '' : entry.page
        marked(text, around(entry, words), words)
        item.append(link, page, text)
        return item
      }))
      hits.hidden = words.length === 0
      contents.hidden = words.length > 0
      count.textContent = words.length === 0 ? '' : found.length === 0 ? 'Nothing found. Try fewer or shorter words.' : found.length + (found.length === 1 ? ' section' : ' sections')
    }
    search.hidden = false
    input.oninput = () => { apply(); history.replaceState(null, '', input.value ? '?q=' + encodeURIComponent(input.value) : location.pathname) }
    input.onkeydown = ({ key }) => { if (key === 'Escape') { input.value = ''; input.oninput() } else if (key === 'Enter') hits.querySelector('a')?.click() }
    input.value = new URLSearchParams(location.search).get('q') ?? ''
    apply()
    if (location.hash === '#search') input.focus()
  }
  if (!filter) addEventListener('keydown', (event) => {
    if (event.key !== '/' || event.ctrlKey || event.metaKey || event.target.closest('input, textarea')) return
    event.preventDefault()
    if (search) { search.scrollIntoView({ block: 'nearest' }); search.querySelector('input').focus() } else location.href = '/docs#search'
  })

  const links = new Map([...document.querySelectorAll('.side a[href^="#"]')].map((link) => [link.hash.slice(1), link]))
  const seen = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) if (isIntersecting) {
      for (const link of links.values()) link.removeAttribute('aria-current')
      const link = links.get(target.id)
      link.setAttribute('aria-current', 'true')
      if (getComputedStyle(side).position === 'sticky') link.scrollIntoView({ block: 'nearest' })
    }
  }, { rootMargin: '-64px 0px -75% 0px' })
  for (const id of links.keys()) { const target = document.getElementById(id); if (target) seen.observe(target) }
})
`
