//! The server's entry point, `RedisModule_OnLoad`, is in the library (`src/module`). Linking the library here exports
//! it.

use library as _;
