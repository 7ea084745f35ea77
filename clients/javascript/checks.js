// Checks of values, each with a description of the valid values.

import { inspect } from "node:util";

export const between = (least, most) => [
    (value) => Number.isSafeInteger(value) && least <= value && value <= most,
    `an integer from ${least} to ${most}`,
];

export const oneOf = (...values) => [(value) => values.includes(value), `one of ${values.map(show).join(", ")}`];

export const powerOfTwo = (most) => [
    (value) => Number.isSafeInteger(value) && 1 <= value && value <= most && Number.isInteger(Math.log2(value)),
    `a power of two up to ${most}`,
];

export const ratio = () => [(value) => typeof value === "number" && 0 < value && value < 1, "above 0 and below 1"];

export const hexadecimal = (most) => [
    (value) => typeof value === "string" && value.length <= most && /^[0-9a-f]+$/i.test(value),
    `1 to ${most} hexadecimal digits`,
];

/** Returns the value, or throws if it isn't valid. */
export function checked(name, value, [fits, what], Kind = RangeError) {
    if (!fits(value)) throw new Kind(`${name} is ${what}, not ${show(value)}`);
    return value;
}

/** A value for the text of an error. */
export const show = (value) => inspect(value, { depth: 0, maxArrayLength: 3, maxStringLength: 40 });
