using System.CommandLine;
using System.Globalization;
using KvCluster.Cli.Files;
using KvCluster.Client;

namespace KvCluster.Cli.Commands;

/// <summary>`kv txn`: a transaction in the notation of etcdctl, from standard input.</summary>
internal static class TransactCommand
{
    /// <summary>Larger input is a mistake: the longest request is 16 MiB.</summary>
    private const int InputBytesMax = 32 << 20;

    public static Command Create() => CliCommand.Create(
        "txn",
        "Read compares, then operations if all hold, then operations if not, from standard input, each part ended by an empty line. "
        + "Print SUCCESS or FAILURE and the results.",
        [],
        async (arguments, output, stop) =>
        {
            var transaction = TransactionText.Parse(await ReadAsync(stop));
            await using var client = Globals.ClientOf(arguments);
            var result = await client.TransactAsync(transaction, cancellationToken: stop);
            if (output.IsJson)
                output.Document(DocumentOf(result));
            else
                Print(output, result);
            return ExitCodes.Done;
        });

    private static async Task<string> ReadAsync(CancellationToken stop)
    {
        var bytes = new byte[InputBytesMax + 1];
        var read = await StandardInput.Open().ReadAtLeastAsync(bytes, bytes.Length, throwOnEndOfStream: false, stop);
        if (read > InputBytesMax)
            throw new CliException(ExitCodes.Usage, "The transaction is larger than a request may be. Nothing was applied.");
        // A reader of text would replace bytes that are not UTF-8, and the replacement would be stored.
        return TransactionText.Decode(bytes.AsSpan(0, read));
    }

    private static Fields DocumentOf(TransactResult result) => new Fields
    {
        { "succeeded", result.Succeeded },
        { "failed_condition", result.FailedCondition },
        { "shard", result.Position.Shard },
        { "etag", result.Position.Etag.ToString() },
        { "results", result.Results.Select(static one => new Fields
        {
            { "etag", one.Etag == default ? null : one.Etag.ToString() },
            { "existed", one.Existed },
            { "number", one.Number is { } number ? Text.Number(number) : null },
            { "entries", one.Entries.Select(static entry => EntryDocument.Of(entry.Key.Span, entry.Value.Span, entry.Etag).ToFields()) },
            { "more", one.More },
        }) },
    };

    private static void Print(Output output, TransactResult result)
    {
        output.Line(result.Succeeded ? "SUCCESS" : "FAILURE");
        foreach (var one in result.Results)
        {
            foreach (var entry in one.Entries)
            {
                output.Data(entry.Key.Span);
                output.Bytes("\n"u8);
                output.Data(entry.Value.Span);
                output.Bytes("\n"u8);
            }
            if (one.Number is { } number)
                output.Line(number.ToString(CultureInfo.InvariantCulture));
            else if (one.Existed is { } existed)
                output.Line(existed ? "1" : "0");
            else if (one.Etag != default && one.Entries.Count == 0)
                output.Line("OK");
        }
    }
}
