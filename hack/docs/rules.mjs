// Rules for markdownlint: how this project writes Markdown.
import { existsSync, readFileSync, statSync } from 'node:fs'
import path from 'node:path'
import { anchor } from './anchor.mjs'
import { words } from './words.mjs'

// repository is how a link begins that names a file of this repository on its forge.
const repository = /^(?:https:\/\/github\.com\/multicidr\/controller-manager|\.\.)\/(?:blob|tree)\/[^/]+\//

// visible is a line without what no sentence ends in: code and targets of links. Code stands for a capital.
const visible = line => line
  .replace(/<!--.*?-->/g, '')
  .replace(/(`+)[^`].*?\1/g, 'C')
  .replace(/\]\([^)]*\)/g, ']')
  .replace(/<[^>]*>/g, '')

// texts are the paragraphs, headings and cells of a page, with what they are in.
function texts({ parsers }) {
  const { tokens } = parsers.markdownit
  return tokens.flatMap((token, i) => token.type === 'inline' ? [{ token, within: tokens[i - 1].type }] : [])
}

// paragraphLines calls back for each line of a paragraph: its text, its number, and whether another one follows.
function paragraphLines(params, callback) {
  for (const { token, within } of texts(params)) {
    if (within !== 'paragraph_open') continue
    const [first, end] = token.map
    for (let n = first; n < end; n++) callback(params.lines[n], n + 1, n + 1 < end)
  }
}

const rule = (name, description, check) =>
  ({ names: [name], description, tags: ['multicidr'], parser: 'markdownit', function: check })

const sentenceEnd = /[.!?:;…][)"'”*_\]]*$/
const abbreviation = /\b(?:e\.g|i\.e|etc|vs|cf|approx)\./g
const secondSentence = /[.!?][)"'”*_\]]*\s+["'“(*_[]*[A-Z]/

const oneSentence = rule('one-sentence-per-line', 'Write one sentence per line', (params, onError) =>
  paragraphLines(params, (line, lineNumber, more) => {
    const text = visible(line).trim()
    const context = line.trim().slice(0, 80)
    const plain = text.replace(abbreviation, m => m.replaceAll('.', ''))
    if (secondSentence.test(plain.replace(/^\d+\.\s/, ''))) {
      onError({ lineNumber, context, detail: 'begin a new line after each sentence' })
    }
    if (more && !sentenceEnd.test(text) && !/^!\[|(?:\\| {2}|<br>)$/.test(line.trim())) {
      onError({ lineNumber, context, detail: 'the sentence goes on in the next line: join the two' })
    }
  }))

const shortSentence = rule('short-sentence', 'Keep sentences short', (params, onError) =>
  paragraphLines(params, (line, lineNumber) => {
    const { length } = visible(line).trim()
    if (length > 200) onError({ lineNumber, detail: `${length} characters, at most 200: make two sentences, or a list` })
  }))

const shortCell = rule('short-cell', 'Keep cells of tables short', (params, onError) => {
  for (const { token, within } of texts(params)) {
    if (within !== 'td_open') continue
    const count = visible(token.content).split(/\s+/).filter(Boolean).length
    if (count > 20) {
      onError({
        lineNumber: (token.map ?? [token.lineNumber - 1])[0] + 1, context: token.content.slice(0, 80),
        detail: `${count} words, at most 20: move this into a paragraph under a heading`,
      })
    }
  }
})

const subject = /^(?:[-*]\s+|\d+\.\s+|>\s+)?(What|Who|Whoever|Whom|Whose|Whatever)\b/

const oneWord = rule('words', 'Use one word for one idea', (params, onError) =>
  params.lines.forEach((line, i) => {
    if (fenced(params).has(i)) return
    const text = visible(line)
    for (const [pattern, instead] of words) {
      const found = text.match(new RegExp(pattern, 'i'))
      if (found) onError({ lineNumber: i + 1, context: line.trim().slice(0, 80), detail: `write “${instead}” instead of “${found[0]}”` })
    }
    const who = text.match(subject)
    if (who && !text.trim().endsWith('?')) {
      onError({ lineNumber: i + 1, context: line.trim().slice(0, 80), detail: `begin with the thing or the person, or with “If you”, instead of “${who[1]}”` })
    }
  }))

// fenced are the indices of lines of code.
const blocks = new WeakMap()
function fenced(params) {
  if (!blocks.has(params.lines)) {
    const lines = params.parsers.markdownit.tokens
      .filter(t => t.type === 'fence' || t.type === 'code_block' || t.type === 'html_block')
      .flatMap(t => Array.from({ length: t.map[1] - t.map[0] }, (_, i) => t.map[0] + i))
    blocks.set(params.lines, new Set(lines))
  }
  return blocks.get(params.lines)
}

const frontMatter = rule('front-matter', 'Tell the site title, description and weight of a page', (params, onError) => {
  if (!path.relative('docs', params.name).startsWith('..')) {
    const has = key => params.frontMatterLines.some(line => line.startsWith(key + ': '))
    const missing = ['title', 'description', 'weight'].filter(key => !has(key))
    if (missing.length > 0) onError({ lineNumber: 1, detail: `add ${missing.join(', ')} to the front matter` })
  }
})

// anchorsOf are the anchors in a page: of its headings, and those that stand in it as HTML.
const pages = new Map()
function anchorsOf(file) {
  if (pages.has(file)) return pages.get(file)
  const found = new Set()
  pages.set(file, found)
  const body = readFileSync(file, 'utf8').replace(/^(```|~~~)[^]*?^\1/gm, '')
  for (const [, id] of body.matchAll(/<a (?:id|name)="([^"]+)"/g)) found.add(id)
  for (const [, heading] of body.matchAll(/^#{1,6} +(.+)$/gm)) {
    const id = anchor(heading.replace(/!?\[([^\]]*)\]\([^)]*\)/g, '$1').replace(/[`*]/g, ''))
    let unique = id
    for (let n = 1; found.has(unique); n++) unique = `${id}-${n}`
    found.add(unique)
  }
  return found
}

// deadLink returns why a link in a page leads nowhere; undefined if it leads somewhere, or elsewhere.
function deadLink(page, href) {
  const local = href.replace(repository, '')
  if (local === href && /^(?:[a-z][a-z+.-]*:|\/\/)/i.test(href)) return undefined
  const [target, fragment] = local.split('#')
  const file = target === '' ? page : path.resolve(local === href ? path.dirname(page) : process.cwd(), decodeURI(target))
  if (!existsSync(file)) return `there is no ${path.relative(process.cwd(), file)}`
  if (!fragment || !file.endsWith('.md') || statSync(file).isDirectory()) return undefined
  return anchorsOf(file).has(decodeURIComponent(fragment)) ? undefined
    : `${path.relative(process.cwd(), file)} has no heading with the anchor #${fragment}`
}

const deadLinks = rule('dead-links', 'Links lead to something', (params, onError) => {
  const page = path.resolve(params.name)
  for (const { token } of texts(params)) {
    for (const child of token.children) {
      const href = child.type === 'link_open' ? child.attrGet('href') : child.type === 'image' ? child.attrGet('src') : null
      const detail = href === null ? undefined : deadLink(page, href)
      if (detail) onError({ lineNumber: child.lineNumber, context: href, detail })
    }
  }
})

export default [oneSentence, shortSentence, shortCell, oneWord, frontMatter, deadLinks]
