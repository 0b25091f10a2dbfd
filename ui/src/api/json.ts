// Reads JSON without losing what JavaScript's numbers and objects cannot hold.
//
// Payloads stand in the server's answers as they were recorded. `JSON.parse` would round 9007199254740993 and sort keys that
// look like numbers, so answers are read here: a number that does not survive a round trip becomes a `Numeral`, and every
// object and array remembers the text that it was read from (`textOf`).

/** A number with more digits than a JavaScript number keeps, or written in another way than JavaScript would. */
export class Numeral {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
  toString(): string {
    return this.text;
  }
}

const sources = new WeakMap<object, string>();

/** The JSON text of a value that `readJson` returned, with objects, arrays and numbers as they were written. */
export function textOf(value: unknown): string {
  if (value instanceof Numeral) return value.text;
  if (typeof value === "object" && value !== null) {
    const source = sources.get(value);
    if (source !== undefined) return source;
  }
  return JSON.stringify(value) ?? "null";
}

const SPACE = /[ \t\n\r]*/y;
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
// Everything up to the closing quote.
const STRING = /"(?:[^"\\]|\\.)*"/y;
const MAX_DEPTH = 256;

/** Moves over JSON text. The payload viewer uses it too, to read a tree of places instead of values. */
export class Scanner {
  readonly text: string;
  at = 0;
  constructor(text: string) {
    this.text = text;
  }
  fail(what: string): never {
    throw new SyntaxError(`${what} at character ${this.at}`);
  }
  space(): void {
    SPACE.lastIndex = this.at;
    SPACE.test(this.text);
    this.at = SPACE.lastIndex;
  }
  peek(): string {
    return this.text.charAt(this.at);
  }
  take(expected: string): void {
    if (!this.text.startsWith(expected, this.at)) this.fail(`expected ${expected}`);
    this.at += expected.length;
  }
  /** The text of a number. */
  number(): string {
    NUMBER.lastIndex = this.at;
    const found = NUMBER.exec(this.text);
    if (found === null) this.fail("unexpected character");
    this.at = NUMBER.lastIndex;
    return found[0];
  }
  /** The text of a string, with its quotes. */
  quoted(): string {
    STRING.lastIndex = this.at;
    const found = STRING.exec(this.text);
    if (found === null) this.fail("a string does not end");
    this.at = STRING.lastIndex;
    return found[0];
  }
}

/** Reads JSON text. Throws a `SyntaxError` that says where the text is not JSON. */
export function readJson(text: string): unknown {
  const scanner = new Scanner(text);
  const value = read(scanner, 0);
  scanner.space();
  if (scanner.at !== text.length) scanner.fail("unexpected text");
  return value;
}

function read(scanner: Scanner, depth: number): unknown {
  if (depth > MAX_DEPTH) scanner.fail("nested too deeply");
  scanner.space();
  const began = scanner.at;
  switch (scanner.peek()) {
    case "{": {
      const object = readObject(scanner, depth);
      sources.set(object, scanner.text.slice(began, scanner.at));
      return object;
    }
    case "[": {
      const array = readArray(scanner, depth);
      sources.set(array, scanner.text.slice(began, scanner.at));
      return array;
    }
    case '"':
      return unquote(scanner.quoted());
    case "t":
      scanner.take("true");
      return true;
    case "f":
      scanner.take("false");
      return false;
    case "n":
      scanner.take("null");
      return null;
    default: {
      const lexeme = scanner.number();
      const number = Number(lexeme);
      return String(number) === lexeme ? number : new Numeral(lexeme);
    }
  }
}

function readObject(scanner: Scanner, depth: number): object {
  const object: Record<string, unknown> = {};
  scanner.take("{");
  scanner.space();
  if (scanner.peek() === "}") {
    scanner.take("}");
    return object;
  }
  for (;;) {
    scanner.space();
    const key = unquote(scanner.quoted());
    scanner.space();
    scanner.take(":");
    const value = read(scanner, depth + 1);
    if (key === "__proto__") {
      // An assignment would change the prototype.
      Object.defineProperty(object, key, { value, enumerable: true, configurable: true, writable: true });
    } else {
      object[key] = value;
    }
    scanner.space();
    if (scanner.peek() === "}") break;
    scanner.take(",");
  }
  scanner.take("}");
  return object;
}

function readArray(scanner: Scanner, depth: number): unknown[] {
  const array: unknown[] = [];
  scanner.take("[");
  scanner.space();
  if (scanner.peek() === "]") {
    scanner.take("]");
    return array;
  }
  for (;;) {
    array.push(read(scanner, depth + 1));
    scanner.space();
    if (scanner.peek() === "]") break;
    scanner.take(",");
  }
  scanner.take("]");
  return array;
}

/** The characters of a quoted string. */
export function unquote(quoted: string): string {
  return quoted.includes("\\") ? (JSON.parse(quoted) as string) : quoted.slice(1, -1);
}
