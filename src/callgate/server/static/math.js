// Formulas in TeX as MathML, which browsers draw by themselves. Whatever is not in the tables below, or does not add up, gives
// nothing: such a formula is shown as it was written.

import { mathml } from "./dom.js";
import { plain } from "./text.js";

const LONGEST = 4000;
const DEPTH_MAX = 30;

const pairs = (words) => Object.fromEntries(words.trim().split(/\s+/).map((pair) => [pair.slice(0, -1), pair.slice(-1)]));

const LETTERS = pairs(`alphaα betaβ gammaγ deltaδ epsilonϵ varepsilonε zetaζ etaη thetaθ varthetaϑ iotaι kappaκ lambdaλ muμ nuν xiξ piπ
  varpiϖ rhoρ varrhoϱ sigmaσ varsigmaς tauτ upsilonυ phiϕ varphiφ chiχ psiψ omegaω GammaΓ DeltaΔ ThetaΘ LambdaΛ XiΞ PiΠ SigmaΣ
  UpsilonΥ PhiΦ PsiΨ OmegaΩ ellℓ hbarℏ infty∞ partial∂ nabla∇ emptyset∅ varnothing∅ Reℜ Imℑ alephℵ wp℘ forall∀ exists∃ nexists∄
  top⊤ bot⊥ angle∠ triangle△ square□ degree° prime′ dots… ldots… cdots⋯ vdots⋮ ddots⋱ imathı jmathȷ`);
const SIGNS = pairs(`times× cdot⋅ pm± mp∓ div÷ ast∗ star⋆ circ∘ bullet∙ oplus⊕ ominus⊖ otimes⊗ odot⊙ wedge∧ land∧ vee∨ lor∨ neg¬ lnot¬
  cup∪ cap∩ setminus∖ leq≤ le≤ leqslant⩽ geq≥ ge≥ geqslant⩾ neq≠ ne≠ approx≈ equiv≡ sim∼ simeq≃ cong≅ propto∝ ll≪ gg≫ prec≺ succ≻
  in∈ notin∉ ni∋ subset⊂ subseteq⊆ subsetneq⊊ supset⊃ supseteq⊇ mid∣ nmid∤ parallel∥ perp⊥ models⊨ vdash⊢ to→ rightarrow→
  leftarrow← gets← leftrightarrow↔ Rightarrow⇒ Leftarrow⇐ Leftrightarrow⇔ longrightarrow⟶ longleftarrow⟵ implies⟹ impliedby⟸ iff⟺
  mapsto↦ hookrightarrow↪ uparrow↑ downarrow↓ rightharpoonup⇀ therefore∴ because∵ colon: lt< gt> triangleq≜ doteq≐ asymp≍`);
const FENCES = { ...pairs("langle⟨ rangle⟩ lfloor⌊ rfloor⌋ lceil⌈ rceil⌉ lVert‖ rVert‖ Vert‖ lvert| rvert| vert| lbrace{ rbrace} lbrack[ rbrack]"), "|": "‖", "{": "{", "}": "}" };
const BIG = pairs("sum∑ prod∏ coprod∐ bigcup⋃ bigcap⋂ bigoplus⨁ bigotimes⨂ bigvee⋁ bigwedge⋀ bigsqcup⨆");
const INTEGRALS = pairs("int∫ iint∬ iiint∭ oint∮");
const FUNCTIONS = new Set("sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh coth log ln lg exp dim ker deg hom arg".split(" "));
const LIMITS = new Set("lim max min sup inf det gcd Pr limsup liminf argmax argmin".split(" "));
const ACCENTS = pairs("hat^ widehat^ bar¯ vec→ overrightarrow→ dot˙ ddot¨ tilde~ widetilde~ acute´ grave` breve˘ check\u02c7 overline¯ overbrace⏞");
const UNDERS = pairs("underline_ underbrace⏟");
const SPACES = { ",": 0.167, ":": 0.222, ">": 0.222, ";": 0.278, "!": -0.167, " ": 0.25, quad: 1, qquad: 2, thinspace: 0.167, enspace: 0.5 };
const IGNORED = new Set("displaystyle textstyle limits nolimits nonumber notag".split(" "));
const SIZED = /^(?:big|Big|bigg|Bigg)[lrm]?$/;
const TEXTS = new Set("text textrm textnormal mbox mathrm operatorname textbf textit textsf texttt mathsf mathtt".split(" "));

// Letters of other faces: where their alphabet begins, and those that were there before it.
const FACES = {
  mathbb: [0x1d538, 0x1d552, { C: "ℂ", H: "ℍ", N: "ℕ", P: "ℙ", Q: "ℚ", R: "ℝ", Z: "ℤ" }],
  mathcal: [0x1d49c, 0x1d4b6, { B: "ℬ", E: "ℰ", F: "ℱ", H: "ℋ", I: "ℐ", L: "ℒ", M: "ℳ", R: "ℛ", e: "ℯ", g: "ℊ", o: "ℴ" }],
  mathfrak: [0x1d504, 0x1d51e, { C: "ℭ", H: "ℌ", I: "ℑ", R: "ℜ", Z: "ℨ" }],
  mathbf: [0x1d400, 0x1d41a, {}],
};
Object.assign(FACES, { mathscr: FACES.mathcal, boldsymbol: FACES.mathbf, bm: FACES.mathbf });

// Environment -> what stands on its left and right, and how its columns are set.
const TABLES = {
  matrix: ["", ""], pmatrix: ["(", ")"], bmatrix: ["[", "]"], Bmatrix: ["{", "}"], vmatrix: ["|", "|"], Vmatrix: ["‖", "‖"],
  smallmatrix: ["", ""], array: ["", ""], cases: ["{", "", "left"], aligned: ["", "", "aligned"], align: ["", "", "aligned"],
  split: ["", "", "aligned"], gathered: ["", ""], gather: ["", ""], equation: ["", "", "aligned"],
}; // prettier-ignore

const TOKEN = /\\[a-zA-Z]+|\\[^]|\d+(?:\.\d+)?|\s+|[^]/gu;

const ENDS = new Set(["&", "\\\\", "}", "\\right", "\\middle", "\\end"]);

class Unknown extends Error {}

/** A formula without its delimiters as MathML; null if not all of it is known. */
export function formula(tex, isBlock = false) {
  if (tex.length > LONGEST || plain(tex) !== tex) return null;
  try {
    return mathml("math", { display: isBlock ? "block" : null }, new Reader(tex).whole());
  } catch (error) {
    if (error instanceof Unknown) return null;
    throw error;
  }
}

const row = (nodes) => (nodes.length === 1 ? nodes[0] : mathml("mrow", {}, nodes));
const sign = (text, props = {}) => mathml("mo", props, text);
const fence = (text, isStretched) => text && sign(text, { stretchy: String(isStretched), fence: "true" });

class Reader {
  constructor(tex) {
    this.tokens = tex.match(TOKEN) ?? [];
    this.at = 0;
    this.depth = 0;
  }

  whole() {
    const made = this.table(null, "aligned");
    if (this.at < this.tokens.length) throw new Unknown();
    return made;
  }

  skip() {
    while (/^\s/.test(this.tokens[this.at] ?? "x")) this.at += 1;
  }

  peek() {
    this.skip();
    return this.tokens[this.at];
  }

  next() {
    const token = this.peek();
    if (token === undefined) throw new Unknown();
    this.at += 1;
    return token;
  }

  expect(token) {
    if (this.next() !== token) throw new Unknown();
  }

  /** Rows of cells up to a token, which is left; one cell alone is a row. */
  table(end, kind) {
    const rows = [[this.row(end)]];
    for (;;) {
      const token = this.peek();
      if (token === "&") rows.at(-1).push((this.next(), this.row(end)));
      else if (token === "\\\\") {
        this.next();
        const space = /^\[\d*\.?\d+(?:pt|em|ex|mm)\]/.exec(this.tokens.slice(this.at, this.at + 8).join(""))?.[0];
        if (space) this.at = this.tokens.indexOf("]", this.at) + 1;
        if (this.peek() === end || (end === null && this.peek() === undefined)) break;
        rows.push([this.row(end)]);
      } else break;
    }
    if (rows.length === 1 && rows[0].length === 1) return row(rows[0][0]);
    const cell = (nodes) => mathml("mtd", {}, nodes);
    return mathml("mtable", { class: kind ?? null, displaystyle: kind === "aligned" ? "true" : null }, rows.map((cells) => mathml("mtr", {}, cells.map(cell))));
  }

  /** The nodes up to a token that ends them, which is left. */
  row(end) {
    const nodes = [];
    for (let token = this.peek(); token !== undefined && token !== end && !ENDS.has(token); token = this.peek()) {
      const node = this.scripted();
      if (node) nodes.push(node);
    }
    return nodes;
  }

  /** An atom with what stands above and below it. */
  scripted() {
    const base = "^_'".includes(this.peek()) ? mathml("mrow") : this.atom();
    if (!base) return null;
    let [under, over, primes] = [null, null, ""];
    for (let token = this.peek(); token === "^" || token === "_" || token === "'"; token = this.peek()) {
      this.next();
      if (token === "'") primes += "′";
      else if (token === "^" && !over) over = this.argument();
      else if (token === "_" && !under) under = this.argument();
      else throw new Unknown();
    }
    if (primes) over = over ? row([sign(primes), over]) : sign(primes);
    const [sub, sup, both] = base.hasLimits ? ["munder", "mover", "munderover"] : ["msub", "msup", "msubsup"];
    const node = under && over ? mathml(both, {}, base, under, over) : under ? mathml(sub, {}, base, under) : over ? mathml(sup, {}, base, over) : base;
    return base.isFunction && /^[\p{L}\d\\]/u.test(this.peek() ?? "") ? row([node, mathml("mspace", { width: "0.167em" })]) : node;
  }

  /** What a command takes: a group, or one atom, which is one digit of a number. */
  argument() {
    const token = this.peek();
    if (/^\d./.test(token)) this.tokens.splice(this.at, 1, token[0], token.slice(1));
    const node = this.deeper(() => this.atom());
    if (!node) throw new Unknown();
    return node;
  }

  group() {
    this.expect("{");
    const nodes = this.deeper(() => this.row("}"));
    this.expect("}");
    return row(nodes);
  }

  deeper(read) {
    if ((this.depth += 1) > DEPTH_MAX) throw new Unknown();
    const made = read();
    this.depth -= 1;
    return made;
  }

  /** The characters of a group, as they stand. */
  words() {
    this.expect("{");
    const from = this.at;
    while (this.tokens[this.at] !== "}") {
      if (this.at >= this.tokens.length || "{$\\".includes(this.tokens[this.at][0])) throw new Unknown();
      this.at += 1;
    }
    return this.tokens.slice(from, (this.at += 1) - 1).join("");
  }

  delimiter() {
    const token = this.next();
    if (token === ".") return "";
    if ("()[]|/<>".includes(token)) return { "<": "⟨", ">": "⟩" }[token] ?? token;
    const known = token[0] === "\\" && (FENCES[token.slice(1)] ?? SIGNS[token.slice(1)]);
    if (!known) throw new Unknown();
    return known;
  }

  atom() {
    const token = this.peek();
    if (token === "{") return this.group();
    this.next();
    if (token[0] === "\\") return this.command(token.slice(1));
    if (/^\d/.test(token)) return mathml("mn", {}, token);
    if (/^\p{L}/u.test(token)) return mathml("mi", {}, token);
    if ("()[]|".includes(token)) return fence(token, false);
    if (token === "~") return mathml("mspace", { width: "0.25em" });
    if (/[}&^_#%$\\]/.test(token)) throw new Unknown();
    return sign({ "-": "−", "*": "∗" }[token] ?? token);
  }

  command(name) {
    const own = (table) => (Object.hasOwn(table, name) ? table[name] : null);
    if (own(LETTERS)) return mathml("mi", {}, own(LETTERS));
    if (own(SIGNS)) return sign(own(SIGNS));
    if (own(FENCES)) return fence(own(FENCES), false);
    if (own(INTEGRALS)) return sign(own(INTEGRALS), { largeop: "true" });
    if (own(BIG)) return Object.assign(sign(own(BIG), { largeop: "true", movablelimits: "true" }), { hasLimits: true });
    if (LIMITS.has(name)) return Object.assign(sign(name, { movablelimits: "true" }), { hasLimits: true });
    if (FUNCTIONS.has(name)) return Object.assign(mathml("mi", {}, name), { isFunction: true });
    if (own(SPACES) !== null) return mathml("mspace", { width: `${own(SPACES)}em` });
    if (IGNORED.has(name)) return null;
    if (own(FACES)) return this.face(own(FACES));
    if (TEXTS.has(name)) return this.upright(name);
    if (own(ACCENTS)) return this.accented(mathml("mover", { accent: "true" }, this.argument(), sign(own(ACCENTS))), name);
    if (own(UNDERS)) return this.accented(mathml("munder", {}, this.argument(), sign(own(UNDERS))), name);
    if (SIZED.test(name)) return fence(this.delimiter(), false) || null;
    const made = Object.hasOwn(COMMANDS, name) && COMMANDS[name].call(this);
    if (!made) throw new Unknown();
    return made;
  }

  /** What stands above or below a brace belongs to it. */
  accented(node, name) {
    return Object.assign(node, { hasLimits: name.endsWith("brace") });
  }

  face([big, small, others]) {
    const letter = (char) => others[char] ?? (/[A-Z]/.test(char) ? String.fromCodePoint(big + char.charCodeAt(0) - 65) : /[a-z]/.test(char) ? String.fromCodePoint(small + char.charCodeAt(0) - 97) : char);
    const node = this.argument();
    for (const each of [node, ...node.querySelectorAll("mi")]) if (each.localName === "mi") each.textContent = [...each.textContent].map(letter).join("");
    return node;
  }

  upright(name) {
    if (name === "operatorname" && this.peek() === "*") this.next();
    const text = this.words();
    return name.startsWith("text") || name === "mbox" ? mathml("mtext", {}, text.replace(/^ | $/g, "\u00a0")) : mathml("mi", { mathvariant: "normal" }, text);
  }
}

const COMMANDS = {
  frac() {
    return mathml("mfrac", {}, this.argument(), this.argument());
  },
  binom() {
    return row([fence("(", true), mathml("mfrac", { linethickness: "0" }, this.argument(), this.argument()), fence(")", true)]);
  },
  sqrt() {
    if (this.peek() !== "[") return mathml("msqrt", {}, this.argument());
    this.next();
    const index = row(this.row("]"));
    this.expect("]");
    return mathml("mroot", {}, this.argument(), index);
  },
  left() {
    const open = this.delimiter();
    const nodes = this.deeper(() => this.row("\\right"));
    while (this.peek() === "\\middle") {
      this.next();
      nodes.push(fence(this.delimiter(), true), ...this.deeper(() => this.row("\\right")));
    }
    this.expect("\\right");
    return mathml("mrow", {}, fence(open, true), nodes, fence(this.delimiter(), true));
  },
  overset() {
    const above = this.argument();
    return mathml("mover", {}, this.argument(), above);
  },
  underset() {
    const below = this.argument();
    return mathml("munder", {}, this.argument(), below);
  },
  boxed() {
    return mathml("mrow", { class: "boxed" }, this.argument());
  },
  bmod() {
    return sign("mod", { lspace: "0.25em", rspace: "0.25em" });
  },
  pmod() {
    return row([mathml("mspace", { width: "0.5em" }), fence("(", false), mathml("mi", {}, "mod"), mathml("mspace", { width: "0.3em" }), this.argument(), fence(")", false)]);
  },
  begin() {
    const name = this.words();
    const [left, right, kind] = (Object.hasOwn(TABLES, name.replace(/\*$/, "")) && TABLES[name.replace(/\*$/, "")]) || [];
    if (left === undefined) throw new Unknown();
    if (name === "array" && !/^[lcr| ]*$/.test(this.words())) throw new Unknown();
    const made = this.deeper(() => this.table("\\end", kind));
    this.expect("\\end");
    if (this.words() !== name) throw new Unknown();
    return mathml("mrow", {}, fence(left, true), made, fence(right, true));
  },
};
Object.assign(COMMANDS, { dfrac: COMMANDS.frac, tfrac: COMMANDS.frac, cfrac: COMMANDS.frac, stackrel: COMMANDS.overset });
for (const [name, code] of Object.entries({ "%": "%", $: "$", "#": "#", "&": "&", _: "_" })) COMMANDS[name] = () => sign(code);
