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
        var count = new Option<ulong>("--count") { Description = "End after so many events; 0 means never.", HelpName = "N" };
        return CliCommand.Create("watch", "Print changes as they are committed, one per line: kind, key, value.", [prefix, key, after, initial, previous, keysOnly, sets, count], async (arguments, output, stop) =>
        {
            var watch = new KvWatch
            {
                Prefix = Text.ToBytes(arguments.GetRequiredValue(prefix)),
                IsOneKey = arguments.GetValue(key),
                After = arguments.GetValue(after),
                Initial = arguments.GetValue(initial),
                WithPrevious = arguments.GetValue(previous),
                KeysOnly = arguments.GetValue(keysOnly),
                WithSets = arguments.GetValue(sets),
            };
            var left = arguments.GetValue(count) is > 0 and var wanted ? wanted : ulong.MaxValue;
            await using var client = Globals.ClientOf(arguments);
            try
            {
                await foreach (var message in client.WatchAsync(watch, stop))
                {
                    for (var index = 0; index < message.Events.Count && left > 0; index++, left--)
                        Print(output, message, index, watch);
                    // Somebody reads while it goes on.
                    output.Flush();
                    if (left == 0)
                        break;
                }
            }
            catch (OperationCanceledException) when (stop.IsCancellationRequested)
            {
                // The ordinary end of a watch. Nothing was changed.
            }
            return ExitCodes.Done;
        });
    }

    private static void Print(Output output, KvWatchMessage message, int index, KvWatch watch)
    {
        var happened = message.Events[index];
        if (output.IsJson)
        {
            output.Document(WatchDocument.Of(message, happened, watch.KeysOnly, index == message.Events.Count - 1 ? message.Token : null));
            return;
        }
        output.Bytes(Text.ToBytes(WatchDocument.NameOf(happened.Kind)).Span);
        output.Bytes("\t"u8);
        output.Bytes(happened.Key.Span);
        var detail = happened.Kind switch
        {
            KvEventKind.Put when !watch.KeysOnly => happened.Value,
            KvEventKind.SetAdd or KvEventKind.SetRemove => happened.Member,
            KvEventKind.DeleteRange => happened.RangeEnd,
            _ => default,
        };
        output.Bytes("\t"u8);
        output.Bytes(detail.Span);
        if (watch.WithPrevious && happened.IsPreviousKnown)
        {
            output.Bytes("\t"u8);
            output.Bytes(happened.PreviousValue.Span);
        }
        output.Bytes("\n"u8);
    }
}
