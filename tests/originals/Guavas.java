import com.google.common.hash.BloomFilter;
import com.google.common.hash.Funnel;
import com.google.common.hash.Funnels;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Random;
import java.util.function.Function;
import java.util.function.Supplier;

/** Makes Guava filters with every funnel and strategy, and records their answers. compare.py describes the files. */
public class Guavas {
    static final int QUESTIONS = 50_000; // about members, and the same number about strangers
    static final int ADDS = 1_000; // after the questions

    static Path folder;
    static Random random;

    /** A type of item: name, words of BF.IMPORT, funnel, maker of random items, and function for an item's bytes. */
    record Kind<T>(String name, String words, Funnel<T> funnel, Supplier<T> item, Function<T, byte[]> bytes) {}

    /** Random text with characters from all planes. It has no lone surrogates, because UTF-8 can't encode them. */
    static String text() {
        int[] ends = {0x80, 0x800, 0xD800, 0x110000};
        StringBuilder text = new StringBuilder();
        for (int length = random.nextInt(24); length > 0; length--) {
            int plane = random.nextInt(ends.length);
            int point = random.nextInt(ends[plane]);
            text.appendCodePoint(Character.isSurrogate((char) point) && point < 0x10000 ? 0xFFFD : point);
        }
        return text.toString();
    }

    static byte[] bytes() {
        byte[] bytes = new byte[random.nextInt(65)];
        random.nextBytes(bytes);
        return bytes;
    }

    static byte[] utf8(Object item) {
        return item.toString().getBytes(StandardCharsets.UTF_8);
    }

    static <T> void record(Kind<T> kind, int strategy, int capacity, double rate, int items) throws IOException {
        BloomFilter<T> filter = BloomFilter.create(kind.funnel(), capacity, rate);
        if (strategy == 0) {
            // Callers can't choose the old strategy, but the first byte of a file can say that it was used.
            byte[] file = written(filter);
            file[0] = 0;
            filter = BloomFilter.readFrom(new ByteArrayInputStream(file), kind.funnel());
        }
        List<T> members = new ArrayList<>();
        for (int i = 0; i < items; i++) {
            members.add(kind.item().get());
            filter.put(members.get(i));
        }
        String shape = (strategy == 0 ? "-mitz32-" : "-mitz64-") + capacity + "-" + rate + "-" + items;
        String name = "guava-" + kind.name() + shape;
        byte[] file = written(filter);
        if (file[0] != strategy) throw new AssertionError("the strategy is " + file[0]);
        Files.write(folder.resolve(name + ".filter"), file);
        try (PrintStream out = new PrintStream(Files.newOutputStream(folder.resolve(name + ".log")), false)) {
            out.println(kind.words());
            ask(out, kind, filter, members, QUESTIONS);
            for (int i = 0; i < ADDS; i++) {
                T item = kind.item().get();
                write(out, "+", filter.put(item), kind, item);
                write(out, "?", filter.mightContain(item), kind, item);
            }
            ask(out, kind, filter, members, ADDS);
            if (out.checkError()) throw new IOException("could not write " + name);
        }
    }

    static byte[] written(BloomFilter<?> filter) throws IOException {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        filter.writeTo(out);
        return out.toByteArray();
    }

    static <T> void ask(PrintStream out, Kind<T> kind, BloomFilter<T> filter, List<T> members, int count) {
        for (int i = 0; i < count; i++) {
            T member = members.get(random.nextInt(members.size()));
            write(out, "?", filter.mightContain(member), kind, member);
            T stranger = kind.item().get();
            write(out, "?", filter.mightContain(stranger), kind, stranger);
        }
    }

    static <T> void write(PrintStream out, String what, boolean answer, Kind<T> kind, T item) {
        out.print(what + (answer ? "1 " : "0 ") + HexFormat.of().formatHex(kind.bytes().apply(item)) + "\n");
    }

    public static void main(String[] arguments) throws IOException {
        folder = Path.of(arguments[0]);
        random = new Random(Long.parseLong(arguments[1]));
        List<Kind<?>> kinds = List.of(
            new Kind<>("bytes", "GUAVA", Funnels.byteArrayFunnel(), Guavas::bytes, item -> item),
            new Kind<>("string", "GUAVA", Funnels.stringFunnel(StandardCharsets.UTF_8), Guavas::text, Guavas::utf8),
            new Kind<>("chars", "GUAVA FUNNEL UTF16", Funnels.unencodedCharsFunnel(), Guavas::text, Guavas::utf8),
            new Kind<>("long", "GUAVA FUNNEL LONG", Funnels.longFunnel(), () -> random.nextLong(), Guavas::utf8),
            new Kind<>("integer", "GUAVA FUNNEL INT", Funnels.integerFunnel(), () -> random.nextInt(), Guavas::utf8));
        for (Kind<?> kind : kinds) {
            for (int strategy = 0; strategy < 2; strategy++) {
                record(kind, strategy, 1, 0.5, 1);
                record(kind, strategy, 100, 0.01, 100);
                record(kind, strategy, 1_000, 0.1, 3_000); // far over its capacity
                record(kind, strategy, 10_000, 0.001, 10_000);
                record(kind, strategy, 500_000, 0.03, 500_000);
            }
        }
    }
}
