// What the pages read, on PostgreSQL: the tests of these files once more, on servers that the fixture starts.
process.env.PERENNIAL_TEST_STORE = "postgres";
for (const file of ["instance", "timeline", "history"]) await import(`./${file}.test.mjs`);
