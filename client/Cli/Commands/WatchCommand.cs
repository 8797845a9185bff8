using System.CommandLine;
using KvCluster.Client;

namespace KvCluster.Cli.Commands;

/// <summary>`kv watch`: prints changes as they are committed, until it is interrupted or has printed enough.</summary>
internal static class WatchCommand
{
    public static Command Create()
    {
        var prefix = new Argument<string>("PREFIX") { Description = "Only keys with this prefix; without it, all keys.", DefaultValueFactory = _ => "" };
        var key = new Option<bool>("--key") { Description = "Only the key PREFIX itself." };
        var after = new Option<string?>("--after") { Description = "Go on after the message with this token.", HelpName = "TOKEN" };
        var initial = new Option<bool>("--initial") { Description = "First print the entries that there are." };
        var previous = new Option<bool>("--previous") { Description = "Also print what a change has replaced, where that is known." };
        var keysOnly = new Option<bool>("--keys-only") { Description = "Print no values." };
        var sets = new Option<bool>("--sets") { Description = "Also print changes of sets." };
        var bookmarks = new Option<bool>(
            "--bookmarks") { Description = "With JSON, also print where the watch is when nothing has changed, each second and shard." };
        var count = new Option<ulong>("--count") { Description = "End after so many events; 0 means never.", HelpName = "N" };
        return CliCommand.CreateReader(
            "watch", "Print changes as they are committed, one per line: kind, key, value, etag, and why a key was removed.",
            [prefix, key, after, initial, previous, keysOnly, sets, bookmarks, count, RawLines.Raw, .. KeyForm.All], async (arguments, output, stop) =>
            {
                var isRaw = RawLines.Of(arguments, output);
                var watch = new KvWatch
                {
                    Prefix = KeyForm.Of(arguments, arguments.GetRequiredValue(prefix)),
                    IsOneKey = arguments.GetValue(key),
                    After = arguments.GetValue(after),
                    Initial = arguments.GetValue(initial),
                    WithPrevious = arguments.GetValue(previous),
                    KeysOnly = arguments.GetValue(keysOnly),
                    WithSets = arguments.GetValue(sets),
                };
                var left = arguments.GetValue(count) is > 0 and var wanted ? wanted : ulong.MaxValue;
                var printsBookmarks = output.IsJson && arguments.GetValue(bookmarks);
                // The newest token, if it was not printed yet.
                string? unprinted = null;
                await using var client = Globals.ClientOf(arguments);
                try
                {
                    await foreach (var message in client.WatchAsync(watch, stop))
                    {
                        if (message.Forget is { } range)
                            PrintForget(output, range, isRaw);
                        var printed = 0;
                        for (; printed < message.Events.Count && left > 0; printed++, left--)
                            Print(output, message, printed, watch, isRaw);
                        // The token of a message is printed with its last event. One that was not printed whole comes again after the token before.
                        if (message.Events.Count == 0)
                            unprinted = message.Token ?? unprinted;
                        else if (printed == message.Events.Count)
                            unprinted = null;
                        if ((printsBookmarks && message.IsBookmark) || (message.IsInitialComplete && printed == message.Events.Count))
                        {
                            PrintPosition(output, message.Token, message.IsInitialComplete);
                            unprinted = null;
                        }
                        // The output is read while the watch goes on.
                        output.Flush();
                        if (left == 0)
                            break;
                    }
                }
                catch (OperationCanceledException) when (stop.IsCancellationRequested)
                {
                    // The ordinary end of a watch. Nothing was changed.
                }
                PrintPosition(output, unprinted, isInitialComplete: false);
                return ExitCodes.Done;
            });
    }

    // Prints the position of a watch that had nothing else to print, so that a later watch can continue there even if nothing changes for longer than the
    // journal is kept.
    private static void PrintPosition(Output output, string? token, bool isInitialComplete)
    {
        if (output.IsJson && token is not null)
            output.Document(new WatchPositionDocument
            {
                Kind = isInitialComplete ? WatchPositionDocument.InitialComplete : WatchPositionDocument.Bookmark,
                Token = token,
            }.ToFields());
    }

    private static void PrintForget(Output output, KvRange range, bool isRaw)
    {
        if (output.IsJson)
        {
            output.Document(WatchForgetDocument.Of(range).ToFields());
            return;
        }
        if (output.IsValueOnly)
            return;
        output.Bytes("forget\t"u8);
        output.Field(range.Start.Span, isRaw);
        output.Bytes("\t"u8);
        output.Field(range.End.Span, isRaw);
        output.Bytes("\n"u8);
    }

    private static void Print(Output output, KvWatchMessage message, int index, KvWatch watch, bool isRaw)
    {
        var happened = message.Events[index];
        if (output.IsJson)
        {
            output.Document(WatchDocument.Of(message, happened, watch.KeysOnly, index == message.Events.Count - 1 ? message.Token : null).ToFields());
            return;
        }
        if (output.IsValueOnly)
        {
            PrintValue(output, happened, isRaw);
            return;
        }
        output.Bytes(Text.ToBytes(WatchDocument.NameOf(happened.Kind)).Span);
        output.Bytes("\t"u8);
        output.Field(happened.Key.Span, isRaw);
        var detail = happened.Kind switch
        {
            KvEventKind.Put when !watch.KeysOnly => happened.Value.Memory,
            KvEventKind.SetAdd or KvEventKind.SetRemove => happened.Member.Memory,
            KvEventKind.DeleteRange => happened.RangeEnd.Memory,
            _ => default,
        };
        output.Bytes("\t"u8);
        output.Field(detail.Span, isRaw);
        output.Bytes(Text.ToBytes($"\t{happened.Etag}\t{WatchDocument.RemovalOf(happened)}").Span);
        if (watch.WithPrevious && happened.IsPreviousKnown)
        {
            output.Bytes("\t"u8);
            output.Field(happened.PreviousValue.Span, isRaw);
        }
        output.Bytes("\n"u8);
    }

    // Only puts have a value.
    private static void PrintValue(Output output, KvEvent happened, bool isRaw)
    {
        if (happened.Kind != KvEventKind.Put)
            return;
        output.Field(happened.Value.Span, isRaw);
        output.Bytes("\n"u8);
    }
}
