namespace KvCluster.Cli;

/// <summary>The texts of `kv` without arguments and of `kv help`. A test parses each of their examples: lines that begin with two spaces and "kv".</summary>
internal static class HelpTopics
{
    private static readonly HelpTopic[] All =
    [
        new("keys", ["get", "put", "delete", "del", "rm", "incr", "touch"],
            """
            One key at a time, or some.

              kv put greeting hello                      set a key; prints the etag of the change
              kv put photo @cat.jpg                      the bytes of a file; - is standard input
              kv get greeting                            print the value and a line feed
              kv get photo --raw > cat.jpg               exactly its bytes
              kv get a b c                               a line for each: key, tab, value
              kv get greeting -o json                    with etag, shard and time left
              kv get greeting --meta                     etag, size, time left and owner, without the value
              kv get orders/2026-12 --floor              the key itself, or the greatest one before it
              kv put session/7 here --ttl 60             a key that lives for a minute
              kv touch session/7 --ttl 60                a minute from now again
              kv incr visits                             add 1; an absent key counts as 0
              kv put jobs/ mow --sequence                a new key with the next number
              kv delete a b                              remove keys
              kv rm --prefix session/                    remove all keys with a prefix

            Keys that are not UTF-8 are given in hexadecimal or base64:

              kv get --key-hex 00ff10
              kv get --key-base64 AP8Q
            """),
        new("conditions", ["txn"],
            """
            A change that is applied only if a condition holds; otherwise the exit code is 4, and nothing was changed.

              kv put lock me --if-absent                 if there is no such key
              kv put config new --if-value old           if it has this value
              kv put config new --if-etag "$etag"        if nobody has changed it since
              kv delete lock --if-exists

            Several keys of one shard at once: compares, operations if all hold, operations if not, each part ended by an empty line.

              kv txn < transfer.txt

            where transfer.txt may be

              value("stock/apples") > "0"

              incr stock/apples -1
              put orders/1 "one apple"

              get stock/apples
            """),
        new("ranges", ["scan", "ls", "count"],
            """
            Keys in their order, which is that of their bytes.

              kv scan packages/                          all keys with a prefix: key, tab, value
              kv ls packages/ --limit 10 --keys-only     ls is another name of scan
              kv scan --start a --end m                  from a, and before m
              kv scan packages/ --reverse --limit 1      the last one
              kv scan packages/ -o value                 only the values
              kv count packages/                         how many there are

            A key or value that would divide a line or a column is quoted as bash quotes it: $'with\ttab'. --raw prints it as it is.
            """),
        new("watch", [],
            """
            Changes as they are committed, until Ctrl-C: kind, key, value, etag, and why a key was removed (deleted, expired, session ended).

              kv watch orders/                           of all keys with a prefix
              kv watch config --key                      of one key
              kv watch orders/ --initial                 first the entries that there are
              kv watch orders/ --count 1                 end after one
              kv watch orders/ --previous                also what was replaced
              kv watch orders/ -o json                   with the token for --after
              kv watch orders/ -o json --after "$token"  go on where another watch ended
            """),
        new("sets", ["set"],
            """
            A set has members in order, each once.

              kv set add tags/red apple cherry           prints how many were not there
              kv set members tags/red
              kv set count tags/red
              kv set remove tags/red cherry
              kv set intersect tags/red tags/round       what sets have in common
              kv set intersect tags/red --facets tags/   and how it is divided by other sets
            """),
        new("sessions", ["session"],
            """
            A session owns keys, and lives as long as it is kept alive. With it end its keys.

              kv session open lock --lifetime 10         prints its id, which is a secret
              kv put lock me --if-absent --owner "$id"
              kv session keep-alive lock "$id"           at least every 10 seconds
              kv session end lock "$id"
            """),
        new("files", ["export", "import", "load", "verify"],
            """
            Many keys at once, from files with a line for each: key, tab, value. They may be compressed with gzip.

              kv import packages.tsv.gz                  says how to go on if it fails; load is another name of import
              kv import packages.tsv --from-line 5001    go on
              kv verify packages.tsv                     compare with the cluster; the exit code is 6 if values differ

            What is exported loads back as it was: every byte, and the time that a key still lives.

              kv export orders/ > orders.tsv
              kv export orders/ -o json > orders.jsonl
              kv export | gzip > all.gz
              kv import orders.tsv
              kv import all.gz
            """),
        new("scripts", [],
            """
            For scripts and other programs.

              kv get config -o json                      a document on a line, with names that stay
              kv scan orders/ -o json                    a line for each entry
              kv get config --timeout 2                  give up after two seconds

            Bytes that are not UTF-8 are base64 in JSON, under another name: value_base64.

            Exit codes: 0 done, 1 not found, 2 usage, 3 unavailable and nothing applied, 4 a condition did not hold, 5 outcome unknown or
            interrupted, 6 differences, 7 problems found, 70 internal, 141 nobody reads the output any more.
            """),
        new("connect", ["shell", "context", "completion"],
            """
            How a cluster is found. Any router or node of it is enough; several are for when one is away.

              kv status --endpoint db1:7400              without a scheme it is http, and with an option of TLS https
              kv status --endpoint db1,db2,db3           port 7400
              kv status --endpoint https://db1:7400 --tls-ca ca.crt --tls-cert me.crt --tls-key me.key
              kv status --endpoint router --gateway      every call through the router, where nodes cannot be reached

            Variables of the environment stand for options: KVCLUSTER_ENDPOINT, KVCLUSTER_TLS_CA, KVCLUSTER_TLS_CERT, KVCLUSTER_TLS_KEY,
            KVCLUSTER_TLS_SERVER_NAME. A context is a name for all of them; the first one is used where nothing else says what is meant:

              kv context add prod --endpoint db1,db2 --tls-ca ca.crt --tls-cert me.crt --tls-key me.key
              kv context add test --endpoint localhost
              kv status --context test                   or KVCLUSTER_CONTEXT=test
              kv context use test
              kv context list

            kv shell executes commands line by line with these options, and completes commands and keys:

              kv shell --context prod
              kv shell --endpoint db1 < commands.txt

            A shell of the system completes commands, options and their values after source <(kv completion bash), or likewise zsh; fish after
            kv completion fish | source.
            """),
        new("operating", ["status", "top", "doctor", "selftest", "admin", "bench"],
            """
            Look at a cluster:

              kv status                                  nodes, shards and leaders, and how far replicas are behind
              kv status --shard 0                        with leases, followers and recent decisions
              kv top                                     which shards change most, every two seconds
              kv doctor                                  problems, and what to do
              kv selftest                                check what a cluster promises, with keys of its own
              kv bench mixed --callers 64 --seconds 10   measure; leaves keys under bench/
              kv bench b --load --rate 5000              YCSB's workload B, with 5,000 operations due each second

            and change it:

              kv admin drain 3                           before node 3 is stopped: it gives its leaderships away
              kv admin transfer 0 --to 2                 of shard 0 to node 2
              kv admin replace-node 3 4 --plan           what moving all replicas of node 3 to node 4 would do
              kv admin placement                         which nodes may have replicas
            """),
    ];

    /// <summary>What `kv` alone prints.</summary>
    public static string Overview { get; } =
        $"""
        kv reads and writes a KvCluster, and operates it.

          kv put greeting hello              set a key
          kv get greeting                    print its value
          kv scan packages/ --limit 10       print keys with a prefix and their values
          kv watch orders/                   print changes as they are committed
          kv delete greeting                 remove a key
          kv status                          show nodes, shards and leaders

        Commands:

          keys       get, put, delete (del), rm, incr, touch, txn
          ranges     scan (ls), count, watch
          more       set, session
          files      export, import (load), verify
          cluster    status, top, doctor, selftest, bench, admin
          kv         shell, context, completion, help

        kv COMMAND --help lists the options of a command, kv --help those of all commands.
        kv help TOPIC has examples of {string.Join(", ", All.Select(static one => one.Name))}.
        """;

    /// <summary>The names of all topics.</summary>
    public static IEnumerable<string> Names => All.Select(static one => one.Name);

    /// <summary>The examples of a topic, or of the topic that a command belongs to.</summary>
    /// <exception cref="CliException">There is no such topic.</exception>
    public static string Of(string name) => All.FirstOrDefault(one => one.Name == name) is { } topic ? topic.Text
        : All.FirstOrDefault(one => one.Commands.Contains(name, StringComparer.Ordinal)) is { } byCommand
            ? $"{byCommand.Text}\n\nkv {name} --help lists its options."
        : throw new CliException(
            ExitCodes.Usage,
            $"There is no topic '{name}'.{Spelling.Question(name, All.SelectMany(static one => one.Commands.Prepend(one.Name)))} See kv help.");

    /// <summary>One topic.</summary>
    /// <param name="Commands">The commands that it is about.</param>
    private sealed record HelpTopic(string Name, string[] Commands, string Text);
}
